#include "device/provider.h"

namespace tensor_fusion::device {

Provider nvidia_provider() { return {}; }

}  // namespace tensor_fusion::device
