"""Ray places a worker by a resource that the platform names, and vLLM's CPU platform names none.

It is given the one that `ray start --num-gpus 1` offers, so that a pair of CPU nodes is placed like a pair of Sparks.
"""

import mend

CLASS = "class CpuPlatform(Platform):\n    _enum = PlatformEnum.CPU\n"
KEY = '    ray_device_key: str = "GPU"\n'

mend.rewrite("vllm", "platforms/cpu.py", mend.Edit(old=CLASS, new=CLASS + KEY, fixed="    ray_device_key"))
