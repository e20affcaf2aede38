"""A terminal in which the tests run a command, and press its keys."""
import fcntl
import os
import pty
import select
import struct
import termios

from conftest import until


class Terminal:
    """`tensor-fusion WORDS` in a terminal of its own; `seen` is what it drew since somebody last looked."""

    def __init__(self, machine, *words, program=None, columns=120, lines=24):
        self.child, self.fd = pty.fork()
        if self.child == 0:
            words = program or machine.program(*words)
            os.execvpe(words[0], words, {**machine.environment, "TERM": "xterm", "PS1": "% "})
        self.resize(columns, lines)
        self.seen = b""

    def resize(self, columns, lines):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self):
        try:
            if select.select([self.fd], [], [], 0.05)[0]:
                self.seen += os.read(self.fd, 65536)
        except OSError:  # the program has ended
            pass
        return self.seen

    def draws(self, *words):
        """Awaits that all of these were drawn, and forgets them."""
        until(f"{words} are drawn", lambda: all(word in self.read() for word in words))
        self.seen = b""

    def press(self, keys):
        os.write(self.fd, keys)

    def end(self):
        status = until("it ends", lambda: self.read() is not None and (got := os.waitpid(self.child, os.WNOHANG))[0] and got)[1]
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)
