"""Old place of `RecoveryTime`."""

from aftlib.checkpoint_planning.plan import DOCUMENT_RECOVERY_TIME, RecoveryTime

__all__ = ["DOCUMENT_RECOVERY_TIME", "RecoveryTime"]
