"""A load of short requests and streams on an OpenAI-compatible server, and what became of each of them."""

from tests.load.load import Load
from tests.load.record import Record
from tests.load.report import Report

__all__ = ["Load", "Record", "Report"]
