#include "worker/backend/cpu/dnnl_guard.h"

#include <dnnl_debug.h>

namespace ringmaster::cpu {

Status DnnlStatus(dnnl_status_t status, const std::string& what) {
  switch (status) {
    case dnnl_success:
      return absl::OkStatus();
    case dnnl_unimplemented:
      return Error(absl::StatusCode::kUnimplemented, "{}: oneDNN has no such kernel", what);
    case dnnl_out_of_memory:
      return Error(absl::StatusCode::kResourceExhausted, "{}: oneDNN is out of memory", what);
    default:
      return Internal("{}: oneDNN says {}", what, dnnl_status2str(status));
  }
}

}  // namespace ringmaster::cpu
