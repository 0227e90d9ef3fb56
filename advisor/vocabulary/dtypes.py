"""Element types: torch's name, the bytes of one element, and what data sheets call it."""

import re
from functools import lru_cache

_NAME = re.compile(r"[a-z][a-z0-9_<>:]{0,79}")
_WIDTHS: dict[str, tuple[str, int]] = {}
for _torch_name, _width, _aliases in (
    ("float64", 8, "double"),
    ("float32", 4, "float"),
    ("float16", 2, "half f16"),
    ("bfloat16", 2, "bf16 __nv_bfloat16"),
    ("float8_e4m3fn", 1, "f8e4m3 float8_e4m3 fp8_e4m3 __nv_fp8_e4m3"),
    ("float8_e5m2", 1, "f8e5m2 fp8_e5m2 __nv_fp8_e5m2"),
    ("float8_e4m3fnuz", 1, ""),
    ("float8_e5m2fnuz", 1, ""),
    ("float8_e8m0fnu", 1, ""),
    ("int64", 8, "long longint longlong i64"),
    ("int32", 4, "int i32"),
    ("int16", 2, "short shortint"),
    ("int8", 1, "char signedchar i8 int8_t"),
    ("uint64", 8, "unsignedlong u64"),
    ("uint32", 4, "unsignedint u32"),
    ("uint16", 2, "unsignedshort"),
    ("uint8", 1, "byte unsignedchar u8 uint8_t"),
    ("bool", 1, ""),
    ("complex32", 4, "complexhalf complex<half>"),
    ("complex64", 8, "complexfloat complex<float>"),
    ("complex128", 16, "complexdouble complex<double>"),
):
    for _alias in (_torch_name, *_aliases.split()):
        _WIDTHS[_alias] = (_torch_name, _width)

_SHORT = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
_SHORT |= {f"float8_{kind}": "fp8" for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")}


@lru_cache(maxsize=1000)
def element(name: str | None) -> tuple[str | None, int | None]:
    """Torch's lower-case name and the bytes of one element; unknown types keep their name, what
    cannot be one has none."""
    if not name:
        return None, None
    plain = name.strip().lower().replace(" ", "").replace("c10::", "").replace("torch.", "")
    return _WIDTHS.get(plain, (plain if _NAME.fullmatch(plain) else None, None))


def short_name(name: str) -> str | None:
    """What data sheets call a floating-point type: 'bf16' for ``c10::BFloat16``; None else."""
    found, _ = element(name)
    return _SHORT.get(found or "")
