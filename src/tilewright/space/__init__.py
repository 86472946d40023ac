"""Parameter spaces: enumerate, prune, explain the funnel."""

from tilewright.space.config import Config, Value
from tilewright.space.constraint import Constraint
from tilewright.space.funnel import Funnel, Stage
from tilewright.space.parameter import Parameter
from tilewright.space.space import Space

__all__ = ["Config", "Constraint", "Funnel", "Parameter", "Space", "Stage", "Value"]
