"""Files as streams of bytes, whatever they are compressed with."""

import gzip
import io
import sys
import zlib

from keras_tta.data.optional_packages import import_optional


class DamagedFile(ValueError):
    """A compressed file that is not what its name says, or ends too early."""

    def __init__(self, reason):
        super().__init__(f"the compressed file is damaged or cut short ({reason})")


def open_bytes(path: str) -> io.BufferedReader:
    """Open a file, `.gz`, `.zst` or plain, or `"-"`, standard input, for reading.

    Reading raises `DamagedFile` when compressed data are damaged or cut short.
    """
    if path == "-":
        return open(sys.stdin.fileno(), "rb", closefd=False)
    if path.endswith(".gz"):
        return io.BufferedReader(_GzipReader(path))
    if path.endswith(".zst"):
        return io.BufferedReader(_ZstandardReader(path))
    return open(path, "rb")


class _GzipReader(gzip.GzipFile):
    def read(self, size=-1):
        try:
            return super().read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DamagedFile(error) from error


class _ZstandardReader(io.RawIOBase):
    def __init__(self, path):
        self._zstandard = import_optional("zstandard", "data", f"Reading {path}")
        self._file = open(path, "rb")
        self._frame = None
        self._rest = b""

    def readable(self):
        return True

    def readinto(self, buffer):
        text = self._rest or memoryview(self._next())
        count = min(len(text), len(buffer))
        buffer[:count], self._rest = text[:count], text[count:]
        return count

    def close(self):
        self._file.close()
        super().close()

    def _next(self):
        # The package's own reader takes a file that is cut short for a whole one.
        try:
            while compressed := self._file.read(1 << 16):
                if text := self._decompress(compressed):
                    return text
        except self._zstandard.ZstdError as error:
            raise DamagedFile(error) from error
        if self._frame is not None:
            raise DamagedFile("it ends in the middle of a frame")
        return b""

    def _decompress(self, compressed):
        parts = []
        while compressed:
            if self._frame is None:
                self._frame = self._zstandard.ZstdDecompressor().decompressobj()
            parts.append(self._frame.decompress(compressed))
            if not self._frame.eof:
                break
            compressed, self._frame = self._frame.unused_data, None
        return b"".join(parts)
