"""What looks wrong while a training is watched: rules over each step, the alerts they raise, and which came first."""

from __future__ import annotations

from msprobe.monitor.alerts.alert import Alert
from msprobe.monitor.alerts.settings import AlertConfigError, AlertSettings, read_alert_settings
from msprobe.monitor.alerts.sink import AlertSink

__all__ = ["Alert", "AlertConfigError", "AlertSettings", "AlertSink", "read_alert_settings"]
