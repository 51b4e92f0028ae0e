"""The format of logs: JSON lines on stderr, which wait for no reader."""

from __future__ import annotations

import json
import logging
from typing import Final

from controller.line_writer import LineWriter

LAST = 1.0  # seconds that the last lines have

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: the constant message, and the fields beside it."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class LineHandler(logging.Handler):
    """A record is a line of `to`. When some were lost, the next one says how many."""

    def __init__(self, to: LineWriter) -> None:
        super().__init__()
        self._to = to
        self._told = 0  # lost lines

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._to.lost
        if lost > self._told:
            record.lines_lost, self._told = lost - self._told, lost
        try:
            self._to.write(self.format(record).encode() + b"\n")
        except (TypeError, ValueError):  # the arguments don't fit the message: that ends nothing
            self.handleError(record)

    def close(self) -> None:
        """Called as the process ends."""
        self._to.close(LAST)
        super().close()


def configure_logging(level: str = "INFO") -> None:
    """JSON lines on stderr, for the whole process."""
    handler = LineHandler(LineWriter(2))
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
