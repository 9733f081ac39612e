"""Write pages that need nothing but a browser: reports on runs, and explained predictions."""

from rrnn.report.pages import explanation_page, report_page, write_report

__all__ = ["explanation_page", "report_page", "write_report"]
