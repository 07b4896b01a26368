/* The program's version; recordings carry it. The log's format has a version of its own. */
#ifndef REPRISE_VERSION_H
#define REPRISE_VERSION_H

#define REPRISE_VERSION "0.1"

#endif
