"""What facts and outcomes amount to: findings, verdicts, advice, and whether what was asked for holds. Pure."""
