"""Sysfs files of Jetsons, after NVIDIA's guides to Jetson Linux 32, 35 and 36."""

from __future__ import annotations

from collections.abc import Mapping

HWMON = "sys/class/hwmon"
THERMAL = "sys/class/thermal"
CPUFREQ = "sys/devices/system/cpu/cpufreq"


def _sensor(folder: str, channels: Mapping[int, tuple[str, int, int]]) -> dict[str, object]:
    """An INA3221 under hwmon: by channel its label, millivolts and milliamperes."""
    return {
        f"{folder}/name": "ina3221",
        f"{folder}/update_interval": 27,
        f"{folder}/in7_label": "sum of shunt voltages",
        f"{folder}/in7_input": 400,
        **{
            f"{folder}/{name}": value
            for channel, (label, millivolts, milliamperes) in channels.items()
            for name, value in (
                (f"in{channel}_label", label),
                (f"in{channel}_enable", 1),
                (f"in{channel}_input", millivolts),
                (f"curr{channel}_input", milliamperes),
                (f"curr{channel}_crit_alarm", 0),
            )
        },
    }


def _zones(*zones: tuple[str, object]) -> dict[str, object]:
    return {
        f"{THERMAL}/thermal_zone{index}/{file}": value
        for index, (kind, temperature) in enumerate(zones)
        for file, value in (("type", kind), ("temp", temperature))
    }


def _cooling(*devices: tuple[str, int]) -> dict[str, object]:
    return {
        f"{THERMAL}/cooling_device{index}/{file}": value
        for index, (kind, state) in enumerate(devices)
        for file, value in (("type", kind), ("cur_state", state))
    }


def _clusters(*clocks: tuple[int, int]) -> dict[str, object]:
    """CPU clusters: their clock and its highest value, in kHz."""
    return {
        f"{CPUFREQ}/policy{4 * index}/{file}": value
        for index, (now, most) in enumerate(clocks)
        for file, value in (("scaling_cur_freq", now), ("scaling_max_freq", most))
    }


# JetPack 5: an AGX board has no rail for its input, and one rail feeds another.
AGX_ORIN: dict[str, object] = {
    "proc/device-tree/model": "Jetson AGX Orin Developer Kit\0",
    "proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\0nvidia,p3701-0000\0nvidia,tegra234\0",
    "etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref\nmore",
    "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=2 NAME=MODE_30W >",
    "var/lib/nvpmodel/status": "pmode:0002 fmode:quiet",
    f"{HWMON}/hwmon0/name": "pwmfan",
    **_sensor(
        f"{HWMON}/hwmon3",
        {1: ("VDD_GPU_SOC", 19880, 500), 2: ("VDD_CPU_CV", 19880, 100), 3: ("VIN_SYS_5V0", 5000, 1000)},
    ),
    **_sensor(f"{HWMON}/hwmon4", {1: ("NC", 0, 0), 2: ("VDDQ_VDD2_1V8AO", 4968, 220), 3: ("NC", 0, 0)}),
    f"{HWMON}/hwmon5/name": "soctherm_oc",
    f"{HWMON}/hwmon5/oc1_event_cnt": 1,
    f"{HWMON}/hwmon5/oc1_throt_en": 1,
    f"{HWMON}/hwmon5/oc2_event_cnt": 15,
    f"{HWMON}/hwmon5/oc3_event_cnt": 37,
    "sys/class/devfreq/15340000.vic/cur_freq": 115200000,
    "sys/class/devfreq/17000000.ga10b/cur_freq": 918000000,
    "sys/class/devfreq/17000000.ga10b/max_freq": 1300500000,
    "sys/class/devfreq/17000000.ga10b/device/load": 873,
    **_zones(("CPU-therm", 51500), ("GPU-therm", 49000), ("CV0-therm", -256000), ("tj-therm", 52125)),
    **_cooling(("pwm-fan", 2), ("gpu-throttle-alert", 0), ("hot-surface-alert", 1), ("thermal-cpufreq-0", 0)),
    **_clusters((729600, 2201600), (2201600, 2201600), (1190400, 2188800)),
}

# JetPack 6: the input has a sensor, and includes the other two.
ORIN_NX: dict[str, object] = {
    "proc/device-tree/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0000\0nvidia,p3767-0000\0nvidia,tegra234\0",
    **_sensor(
        f"{HWMON}/hwmon1", {1: ("VDD_IN", 5000, 2000), 2: ("VDD_CPU_GPU_CV", 5000, 900), 3: ("VDD_SOC", 5000, 400)}
    ),
    "sys/class/devfreq/17000000.gpu/cur_freq": 306000000,
    "sys/class/devfreq/17000000.gpu/max_freq": 918000000,
    "sys/class/devfreq/17000000.gpu/device/load": 0,
    **_zones(("cpu-thermal", 45000), ("tj-thermal", 46000)),
    **_clusters(
        (1984000, 1984000),
    ),
}

_XAVIER_SENSORS = "sys/bus/i2c/drivers/ina3221x"
_XAVIER_RAILS = {"1-0040/iio:device0": ("GPU", "CPU", "SOC"), "1-0041/iio:device1": ("CV", "VDDRQ", "SYS5V")}

# JetPack 4: the sensors are industrial I/O's, and report power themselves, in milliwatts.
XAVIER: dict[str, object] = {
    "proc/device-tree/model": "Jetson-AGX\0",
    "proc/device-tree/compatible": "nvidia,p2972-0000\0nvidia,tegra194\0",
    **{
        f"{_XAVIER_SENSORS}/{folder}/{file}": value
        for folder, names in _XAVIER_RAILS.items()
        for channel, name in enumerate(names)
        for file, value in ((f"rail_name_{channel}", name), (f"in_power{channel}_input", 1000 + channel))
    },
    "sys/class/devfreq/17000000.gv11b/cur_freq": 1377000000,
    "sys/class/devfreq/17000000.gv11b/max_freq": 1377000000,
    "sys/devices/gpu.0/load": 998,
    **_zones(("CPU-therm", 40000), ("PMIC-Die", 100000), ("GPU-therm", 38500)),
    **_cooling(("pwm-fan", 0), ("gpu-balanced", 3)),
    **_clusters((2265600, 2265600)),
}
