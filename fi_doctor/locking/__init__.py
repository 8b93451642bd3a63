"""What was proved, with a digest of every input that it rests on, so that it need not be proved again."""
