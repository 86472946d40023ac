"""Parameter spaces: enumerate, prune, explain the funnel."""

from tilewright.space.config import Config, Value
from tilewright.space.space import Constraint, Funnel, Parameter, Space, Stage

__all__ = ["Config", "Constraint", "Funnel", "Parameter", "Space", "Stage", "Value"]
