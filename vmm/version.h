/* The program's version; recordings carry it. The log's format has a version of its own. */
#ifndef REPRISE_VERSION_H
#define REPRISE_VERSION_H

#define REPRISE_VERSION "0.1"
#define REPRISE_DATE    "2026-11-26" /* of the manual pages and the package */

#endif
