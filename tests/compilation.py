"""How tests compile: most of their time goes into it."""

QUICK = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
)
"""For XLA_FLAGS: programs of a second's work are compiled quickly rather than well."""
