#include "worker/backend/cpu/device.h"

#include <dnnl_debug.h>

#include "worker/backend/failure.h"
namespace ringmaster::cpu {
namespace {

std::string InstructionSet(dnnl_cpu_isa_t isa) {
  switch (isa) {
    case dnnl_cpu_isa_sse41:
      return "sse41";
    case dnnl_cpu_isa_avx:
      return "avx";
    case dnnl_cpu_isa_avx2:
      return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
      return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
      return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
      return "avx512_core_amx";
    default:
      return fmt::format("isa_{:#x}", static_cast<unsigned>(isa));
  }
}

bool HasBf16(dnnl_cpu_isa_t isa) {
  return (isa & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
}

}  // namespace

StatusOr<Device> Device::Create(Bf16Arithmetic wanted) {
  Device device;
  RING_ASSIGN_OR_RETURN(device.engine, GuardDnnl("cpu engine", [] {
                          return dnnl::engine(dnnl::engine::kind::cpu, 0);
                        }));
  const dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
  device.bf16 = HasBf16(isa) ? wanted : Bf16Arithmetic::kEmulated;
  device.instruction_set = InstructionSet(isa);
  if (dnnl_get_cpu_isa_hints() != dnnl_cpu_isa_no_hints) device.instruction_set += "+hints";
  if (device.bf16 == Bf16Arithmetic::kEmulated) device.instruction_set += "+emulated_bf16";
  return device;
}

dnnl::memory::data_type Device::compute_type(graph::DType dtype) const {
  return dtype == graph::DType::kBFloat16 && bf16 == Bf16Arithmetic::kNative
             ? dnnl::memory::data_type::bf16
             : dnnl::memory::data_type::f32;
}

Status DnnlStatus(dnnl_status_t status, const std::string& what) {
  switch (status) {
    case dnnl_success:
      return absl::OkStatus();
    case dnnl_unimplemented:
      return Error(absl::StatusCode::kUnimplemented, "{}: oneDNN has no such kernel", what);
    case dnnl_out_of_memory:
      return OutOfMemory("{}: oneDNN is out of memory", what);
    default:
      return Internal("{}: oneDNN says {}", what, dnnl_status2str(status));
  }
}

}  // namespace ringmaster::cpu
