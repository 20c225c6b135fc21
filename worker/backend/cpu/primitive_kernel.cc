#include "worker/backend/cpu/primitive_kernel.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "worker/backend/cpu/layout.h"
#include "worker/backend/cpu/parallel.h"
#include "worker/backend/cpu/strips.h"
#include "worker/backend/cpu/weight_tiles.h"

namespace ringmaster::cpu {
namespace {

using Side = PrimitiveOperand::Side;

// A primitive with its arguments, ready to run.
class Call {
 public:
  Call(dnnl::primitive primitive, std::vector<std::pair<int, dnnl::memory>> memories)
      : primitive_(std::move(primitive)), memories_(std::move(memories)) {
    for (const auto& [argument, memory] : memories_) arguments_.push_back({argument, memory.get()});
  }

  dnnl_status_t Execute(const dnnl::stream& stream) const {
    return dnnl_primitive_execute(primitive_.get(), stream.get(),
                                  static_cast<int>(arguments_.size()), arguments_.data());
  }

 private:
  dnnl::primitive primitive_;
  std::vector<std::pair<int, dnnl::memory>> memories_;
  std::vector<dnnl_exec_arg_t> arguments_;
};

// A copy of one operand in the workspace, in the primitive's type and layout.
struct Staging {
  size_t operand;
  size_t offset;                                         // of the copy
  size_t scratch_offset;                                 // of the reorder's scratchpad
  std::optional<dnnl::reorder::primitive_desc> reorder;  // nullopt: 16 bits <-> float32, or tiles
  std::optional<WeightTiles> tiles;                      // of an output
};

constexpr int64_t kReorderPiece = 4096;
constexpr int64_t kGradientPiece = 1 << 16;  // elements, at least, if not one band

int64_t ElementsOf(const dnnl::memory::desc& desc) {
  int64_t elements = 1;
  for (dnnl::memory::dim extent : desc.dims()) elements *= extent;
  return elements;
}

graph::DType StoredType(const PrimitiveOperand& operand) {
  const DnnlType type = operand.stored.data_type();
  return type == DnnlType::bf16  ? graph::DType::kBFloat16
         : type == DnnlType::f16 ? graph::DType::kFloat16
                                 : graph::DType::kFloat32;
}

class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(const BindContext& context, dnnl::primitive primitive,
                  dnnl::memory::desc scratchpad, std::vector<PrimitiveOperand> operands)
      : name_(context.node.name),
        engine_(context.device.engine),
        threads_(context.threads),
        primitive_(std::move(primitive)),
        scratchpad_(std::move(scratchpad)),
        operands_(std::move(operands)),
        stream_(engine_) {}

  // Lays out the workspace: the primitive's scratchpad, then copies of operands.
  void Plan() {
    (void)Reserve(scratchpad_.get_size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].compute != operands_[i].stored) Stage(i);
    }
  }

  // Where the gradient is brought over by bands: each is handed over as it is.
  [[nodiscard]] bool MakePieces() override {
    const auto output = [&](const Staging& staging) {
      const PrimitiveOperand& operand = operands_[staging.operand];
      return staging.tiles && operand.side == Side::kOutput && operand.index == 0;
    };
    const auto found = std::ranges::find_if(stagings_, output);
    if (found == stagings_.end()) return false;
    const int64_t band = found->tiles->band_elements();
    bands_of_piece_ = std::min(found->tiles->bands(), (kGradientPiece - 1) / band + threads_);
    piece_offset_ = Reserve(static_cast<size_t>(bands_of_piece_ * band) * sizeof(float));
    return true;
  }

  [[nodiscard]] size_t workspace_bytes() const override { return workspace_bytes_; }

  Status Attach(const Operands& operands) override {
    const auto attached = GuardDnnl(name_, [&] {
      attached_ = operands;
      reorders_.clear();
      std::vector<std::pair<int, dnnl::memory>> memories;
      for (const PrimitiveOperand& operand : operands_) {
        memories.emplace_back(operand.argument,
                              dnnl::memory(operand.compute, engine_, Address(operand)));
      }
      for (const Staging& staging : stagings_) {
        void* copy = operands.workspace + staging.offset;
        const PrimitiveOperand& operand = operands_[staging.operand];
        memories[staging.operand].second = dnnl::memory(operand.compute, engine_, copy);
        if (staging.reorder) AttachReorder(staging, memories[staging.operand].second);
      }
      memories.emplace_back(DNNL_ARG_SCRATCHPAD,
                            dnnl::memory(scratchpad_, engine_, operands.workspace));
      call_.emplace(primitive_, std::move(memories));
      return true;
    });
    return attached.status();
  }

  Status Run(const RunKeys& /*keys*/, const TakePiece& take) override {
    for (const Staging& staging : stagings_) {
      const PrimitiveOperand& operand = operands_[staging.operand];
      if (operand.side == Side::kInput) Widen(operand, staging);
    }
    RING_RETURN_IF_ERROR(DnnlStatus(call_->Execute(stream_), name_));
    for (const Staging& staging : stagings_) {
      const PrimitiveOperand& operand = operands_[staging.operand];
      if (operand.side != Side::kOutput || staging.reorder) continue;
      if (staging.tiles && bands_of_piece_ > 0) {
        HandOver(staging, take);
      } else {
        Bring(operand, staging);
      }
    }
    for (const Call& reorder : reorders_) {
      RING_RETURN_IF_ERROR(DnnlStatus(reorder.Execute(stream_), name_));
    }
    return absl::OkStatus();
  }

 private:
  void Widen(const PrimitiveOperand& operand, const Staging& staging) const {
    WithStorage(StoredType(operand), [&]<typename T>(T) {
      const auto* from = static_cast<const T*>(Address(operand));
      ParallelPieces(threads_, ElementsOf(operand.compute), kReorderPiece,
                     [from, to = CopyOf(staging)](int64_t first, int64_t last) {
                       Convert(from + first, to + first, last - first);
                     });
    });
  }

  void Bring(const PrimitiveOperand& operand, const Staging& staging) const {
    if (staging.tiles) {
      return Restore(staging, 0, staging.tiles->bands(), static_cast<float*>(Address(operand)));
    }
    WithStorage(StoredType(operand), [&]<typename T>(T) {
      auto* to = static_cast<T*>(Address(operand));
      ParallelPieces(threads_, ElementsOf(operand.compute), kReorderPiece,
                     [from = CopyOf(staging), to](int64_t first, int64_t last) {
                       Convert(from + first, to + first, last - first);
                     });
    });
  }

  // Bands `first` to `end`, the first of them to `to`.
  void Restore(const Staging& staging, int64_t first, int64_t end, float* to) const {
    ParallelPieces(threads_, end - first, 1, [&](int64_t begin, int64_t last) {
      staging.tiles->Restore(CopyOf(staging), to + begin * staging.tiles->band_elements(),
                             first + begin, first + last);
    });
  }

  void HandOver(const Staging& staging, const TakePiece& take) const {
    auto* const piece = reinterpret_cast<float*>(attached_.workspace + piece_offset_);
    const auto band = static_cast<size_t>(staging.tiles->band_elements());
    const int64_t bands = staging.tiles->bands();
    for (int64_t first = 0; first < bands; first += bands_of_piece_) {
      const int64_t end = std::min(bands, first + bands_of_piece_);
      Restore(staging, first, end, piece);
      take(static_cast<size_t>(first) * band, {piece, static_cast<size_t>(end - first) * band});
    }
  }

  size_t Reserve(size_t bytes) {
    return std::exchange(workspace_bytes_, workspace_bytes_ + AlignUp(bytes));
  }

  void Stage(size_t i) {
    const PrimitiveOperand& operand = operands_[i];
    Staging staging{i, Reserve(operand.compute.get_size()), 0, std::nullopt, std::nullopt};
    const bool reordered =
        operand.side == Side::kOutput && operand.compute.data_type() == operand.stored.data_type();
    if (reordered) staging.tiles = WeightTiles::Of(operand.stored, operand.compute);
    if (reordered && !(staging.tiles && staging.tiles->restores())) {
      staging.tiles.reset();
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      staging.reorder.emplace(engine_, operand.compute, engine_, operand.stored, attributes);
      staging.scratch_offset = Reserve(staging.reorder->scratchpad_desc().get_size());
    }
    stagings_.push_back(std::move(staging));
  }

  void AttachReorder(const Staging& staging, const dnnl::memory& copy) {
    const PrimitiveOperand& operand = operands_[staging.operand];
    void* scratch = attached_.workspace + staging.scratch_offset;
    reorders_.emplace_back(
        dnnl::reorder(*staging.reorder),
        std::vector<std::pair<int, dnnl::memory>>{
            {DNNL_ARG_FROM, copy},
            {DNNL_ARG_TO, dnnl::memory(operand.stored, engine_, Address(operand))},
            {DNNL_ARG_SCRATCHPAD,
             dnnl::memory(staging.reorder->scratchpad_desc(), engine_, scratch)}});
  }

  void* Address(const PrimitiveOperand& operand) const {
    return operand.side == Side::kInput ? const_cast<void*>(attached_.inputs[operand.index])
                                        : attached_.outputs[operand.index];
  }
  float* CopyOf(const Staging& staging) const {
    return reinterpret_cast<float*>(attached_.workspace + staging.offset);
  }

  const std::string name_;
  const dnnl::engine engine_;
  const int threads_;
  const dnnl::primitive primitive_;
  const dnnl::memory::desc scratchpad_;
  const std::vector<PrimitiveOperand> operands_;
  dnnl::stream stream_;
  std::vector<Staging> stagings_;
  size_t workspace_bytes_ = 0;
  int64_t bands_of_piece_ = 0;  // of a gradient in pieces, else 0
  size_t piece_offset_ = 0;

  Operands attached_;
  std::optional<Call> call_;
  std::vector<Call> reorders_;
};

}  // namespace

dnnl::primitive_attr PrimitiveAttributes(graph::Activation activation) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // Or a host's DNNL_DEFAULT_FPMATH_MODE might choose.
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  if (activation == graph::Activation::kRelu) {
    dnnl::post_ops post_ops;
    post_ops.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
    attributes.set_post_ops(post_ops);
  }
  return attributes;
}

PrimitiveOperand ActivationOperand(const BindContext& context, int argument, Side side,
                                   size_t index) {
  const graph::Value& value = side == Side::kInput ? context.input(index) : context.output(index);
  const DnnlType stored = value.dtype == graph::DType::kBFloat16  ? DnnlType::bf16
                          : value.dtype == graph::DType::kFloat16 ? DnnlType::f16
                                                                  : DnnlType::f32;
  return {argument, side, index,
          ActivationDesc(value.shape, context.device.compute_type(value.dtype)),
          ActivationDesc(value.shape, stored)};
}

PrimitiveOperand WeightOperand(int argument, size_t index, const dnnl::memory::desc& desc) {
  return {argument, Side::kInput, index, desc, desc};
}

PrimitiveOperand WeightGradientOperand(const BindContext& context,
                                       const dnnl::memory::desc& compute) {
  return {DNNL_ARG_DIFF_WEIGHTS, Side::kOutput, 0, compute,
          CanonicalWeightDesc(context.output(0).shape, DnnlType::f32, GroupsOf(compute))};
}

PrimitiveOperand BiasGradientOperand(const dnnl::memory::desc& desc) {
  return {DNNL_ARG_DIFF_BIAS, Side::kOutput, 1, desc, desc};
}

StatusOr<std::unique_ptr<Kernel>> MakePrimitiveKernel(const BindContext& context,
                                                      const dnnl::primitive& primitive,
                                                      const dnnl::memory::desc& scratchpad,
                                                      std::vector<PrimitiveOperand> operands) {
  return GuardDnnl(context.node.name, [&]() -> std::unique_ptr<Kernel> {
    auto kernel =
        std::make_unique<PrimitiveKernel>(context, primitive, scratchpad, std::move(operands));
    kernel->Plan();
    return kernel;
  });
}

}  // namespace ringmaster::cpu
