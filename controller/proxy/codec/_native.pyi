"""The native module's names; the seam itself is documented in `__init__.pyi`."""

from . import Body as Body
from . import Complete as Complete
from . import Forwarding as Forwarding
from . import Identifiers as Identifiers
from . import Limits as Limits
from . import Refused as Refused
from . import RequestHead as RequestHead
from . import RequestReader as RequestReader
from . import ResponseHead as ResponseHead
from . import ResponseReader as ResponseReader
from . import Truncated as Truncated
