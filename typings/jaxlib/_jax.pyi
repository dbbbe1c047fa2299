"""What polyfed uses of JAX's compiled module, which comes without types."""

class Device:
    id: int
    platform: str
    device_kind: str
    process_index: int
    def memory_stats(self) -> dict[str, int] | None: ...
