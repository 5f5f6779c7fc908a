"""What the method does on paper: curves, landmarks, finite groups, and a laboratory with exact gradients.

Needs the method (layers 0 to 2) and torch alone; `pictures` also needs matplotlib.
"""

from .arms import Arm, parse_arm, parse_schedule
from .lab import LabResult, LabSettings, run_lab
from .landmarks import coefficient_sheet, rule_sheet
from .scales import finite_group_sheet, schedule_scales, schedule_sheet
from .sheet import Sheet
from .weights import compare_sheet, curve_sheet, prompt_weights

__all__ = [
    "Arm",
    "LabResult",
    "LabSettings",
    "Sheet",
    "coefficient_sheet",
    "compare_sheet",
    "curve_sheet",
    "finite_group_sheet",
    "parse_arm",
    "parse_schedule",
    "prompt_weights",
    "rule_sheet",
    "run_lab",
    "schedule_scales",
    "schedule_sheet",
]
