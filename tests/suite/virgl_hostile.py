"""Hostile guests and dying renderers behind a recorded virtio-gpu."""
import json
import os
import random
import re
import signal
import time

from suite.harness import DAMAGE, DIVERGED, ERROR, IMAGES, USAGE, test

BUFFERS = 400
KILLS = 5
