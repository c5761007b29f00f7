"""From a spec to the bytes of a picture, without a browser.

`vl_convert` runs Vega in an engine of its own, and lets other Python threads run
meanwhile. Its specs are ours alone and their data bounded, and it may fetch nothing.
Pictures are drawn one after the other by one thread, however many are asked for.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import Literal

from lometab.errors import ConfigError
from lometab.extras import naming_extras
from lometab.plots.theme import Spec

Format = Literal["svg", "png"]

MAX_BYTES = 4_000_000
"""Of a spec as JSON."""
MAX_SCALE = 4.0
MAX_WAITING = 16
"""Pictures that may be asked for at once."""
_VERSION = "6.1"
"""Of Vega-Lite: pictures change only when we change this."""


class RenderBusy(Exception):
    """Too many pictures are asked for at once, or this one takes too long."""


def render(
    spec: Spec, format: Format = "svg", *, scale: float = 2.0, timeout: float = 20.0
) -> bytes:
    """Draw a themed spec.

    Args:
        scale: of a PNG: 2 has two pixels for each unit.
        timeout: seconds, to wait for other pictures too.

    Raises:
        RenderBusy: it took longer, or too many wait already.
    """
    if not 0 < scale <= MAX_SCALE:
        raise ConfigError(
            f"scale must be above 0 and at most {MAX_SCALE:g}, however: {scale}"
        )
    text = json.dumps(spec, allow_nan=False)
    if len(text) > MAX_BYTES:
        raise ConfigError(f"the figure has {len(text)} bytes; at most {MAX_BYTES}")
    if not _places.acquire(blocking=False):
        raise RenderBusy
    future = _painter().submit(_render, text, format, scale)
    future.add_done_callback(lambda _: _places.release())
    try:
        return future.result(timeout)
    except TimeoutError:
        future.cancel()
        raise RenderBusy from None


@lru_cache(maxsize=32)
def _render(text: str, format: Format, scale: float) -> bytes:
    with naming_extras():
        import vl_convert  # 80 MB, which only those need who draw

    if format == "svg":
        svg: str = vl_convert.vegalite_to_svg(
            text, vl_version=_VERSION, allowed_base_urls=[]
        )
        return svg.encode()
    return bytes(
        vl_convert.vegalite_to_png(
            text, vl_version=_VERSION, allowed_base_urls=[], scale=scale
        )
    )


@cache
def _painter() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="lometab-figures")


_places = threading.BoundedSemaphore(MAX_WAITING)
