from flashinfer._decode_wrappers import *  # noqa: F403
from flashinfer._decode_xqa import *  # noqa: F403
