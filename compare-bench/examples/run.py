#!/usr/bin/env python3
# `lockwell run` beside `etcdctl lock`: a process for each lock, as in a script. LOCKWELL is its path.
import os, subprocess

import own


class Run:
    def __init__(self, name):
        self.command = [os.environ.get("LOCKWELL", "lockwell"), "run", name, "cat"]

    def acquire(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.process.stdin.write(b"held\n")
        # cat writes it once it runs.
        if not self.process.stdout.readline():
            raise RuntimeError("lockwell got no lock")

    def release(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait():
            raise RuntimeError(f"lockwell ended with {self.process.returncode}")


# Other libraries know etcd by the addresses of its members.
os.environ["LOCKWELL_URL"] = os.environ["PEER_URLS"].replace(",http://", ",").replace("http://", "etcd://")
own.Lock = Run
version = subprocess.run([Run("").command[0], "--version"], capture_output=True, text=True, check=True).stdout
own.serve(version.split()[1], "lockwell run NAME cat, a process for each lock, and one for cat")
