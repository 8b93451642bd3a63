"""fi-doctor: which FlashInfer kernels work here, which do not and why, and what to set."""

__version__ = "0.1.0"
