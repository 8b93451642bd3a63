from . import core as core
