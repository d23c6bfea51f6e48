"""Has a write lease on the file FILE, as Samba and the kernel's NFS server have one for a client of theirs. Asked for it, it
gives it back SECONDS later. Says so when it has the lease, and ends with its standard input: lease.py FILE SECONDS"""

import fcntl
import os
import signal
import sys
import time

file = os.open(sys.argv[1], os.O_RDWR)


def give_back(*_):
    time.sleep(float(sys.argv[2]))
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


signal.signal(signal.SIGIO, give_back)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("it has the lease", flush=True)
sys.stdin.read()
