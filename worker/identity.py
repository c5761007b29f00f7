"""What all parts of a worker process share: its id, and whether it has to stop."""

import os
import secrets
import socket
import threading

WORKER_ID = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
stopping = threading.Event()
busy = threading.Event()
"""Set while it has a notification in hand: whatever waits, it will look for itself."""
