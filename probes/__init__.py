"""One script per kernel question; each runs by itself and knows nothing of fi-doctor.

Nothing here is imported by the command line: the PROBE literal of each file is read with ast, and the harness runs the
file in the interpreter that is examined. `python probes/<file>.py` runs a probe by hand, and only the variants whose
names follow where there are any. build() compiles and loads what the variant will call, without a GPU; it returns False
where nothing is compiled before the call, as with CuTe DSL and Triton. FI_DOCTOR_PROBE_DEVICE=cpu makes the probes put
their tensors on the CPU, which only serves to test the probes' own checks against a stand-in for FlashInfer.
"""
