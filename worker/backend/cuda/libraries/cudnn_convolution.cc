#include "worker/backend/cuda/libraries/cudnn_convolution.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace ringmaster::cuda {
namespace {

// Names of tensors in a graph and its variant pack.
enum Uid : int64_t { kX = 1, kW, kY, kBias, kBetween };  // and those after it

cudnnDataType_t CudnnType(graph::DType type) {
  switch (type) {
    case graph::DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case graph::DType::kFloat16:
      return CUDNN_DATA_HALF;
    case graph::DType::kFloat32:
    case graph::DType::kInt32:
      break;
  }
  return CUDNN_DATA_FLOAT;
}

template <typename T, size_t n>
std::span<const T> View(const std::array<T, n>& values) {
  return values;
}

// `kVirtual`: between two operations of a fused kernel, never in memory.
enum class Storage : uint8_t { kMemory, kVirtual };

StatusOr<CudnnDescriptor> Tensor(Uid uid, const TensorLayout& layout, graph::DType type,
                                 Storage storage = Storage::kMemory) {
  return CudnnBuilder(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .Set(CUDNN_ATTR_TENSOR_UNIQUE_ID, int64_t{uid})
      .Set(CUDNN_ATTR_TENSOR_DATA_TYPE, CudnnType(type))
      .Set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kTensorAlignment)
      .SetAll(CUDNN_ATTR_TENSOR_DIMENSIONS, View(layout.dimensions))
      .SetAll(CUDNN_ATTR_TENSOR_STRIDES, View(layout.strides))
      .Set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, storage == Storage::kVirtual)
      .Finalize("tensor");
}

StatusOr<CudnnDescriptor> ConvolutionDescriptor(const graph::Conv2dAttributes& a) {
  const std::array<int64_t, 2> before = {a.pads[0], a.pads[1]};
  const std::array<int64_t, 2> after = {a.pads[2], a.pads[3]};
  const std::array<int64_t, 2>& strides = a.strides;
  const std::array<int64_t, 2>& dilations = a.dilations;
  return CudnnBuilder(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .Set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .Set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .SetAll(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, View(before))
      .SetAll(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, View(after))
      .SetAll(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, View(strides))
      .SetAll(CUDNN_ATTR_CONVOLUTION_DILATIONS, View(dilations))
      .Finalize("convolution");
}

// What cuDNN calls the operation of a pass and its attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t x, w, y, convolution, alpha, beta;
};

PassNames NamesOf(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::kForward:
      break;
    case ConvolutionPass::kInputGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvolutionPass::kWeightGradient:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

StatusOr<CudnnDescriptor> ConvolutionOperation(const ConvolutionShape& shape,
                                               const CudnnDescriptor& x, const CudnnDescriptor& w,
                                               const CudnnDescriptor& y) {
  RING_ASSIGN_OR_RETURN(const CudnnDescriptor convolution, ConvolutionDescriptor(shape.attributes));
  const PassNames names = NamesOf(shape.pass);
  return CudnnBuilder(names.operation)
      .Set(names.x, x)
      .Set(names.w, w)
      .Set(names.y, y)
      .Set(names.convolution, convolution)
      .Set(names.alpha, 1.0F)
      .Set(names.beta, 0.0F)
      .Finalize(Name(shape.pass));
}

// y = mode(x), or mode(x, b) with a `b`; in float32.
StatusOr<CudnnDescriptor> PointwiseOperation(cudnnPointwiseMode_t mode, const CudnnDescriptor& x,
                                             const CudnnDescriptor* b, const CudnnDescriptor& y) {
  CudnnBuilder pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .Set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    // The shard's flag must see a NaN behind a relu.
    pointwise.Set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN);
  }
  RING_ASSIGN_OR_RETURN(const CudnnDescriptor descriptor, pointwise.Finalize("pointwise"));
  CudnnBuilder operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .Set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) operation.Set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  return operation.Finalize("pointwise operation");
}

// What follows the sums inside the same kernel.
enum class Step : uint8_t { kAddBias, kRelu, kWiden };

// No engine writes a gradient of weights in float32 from 16-bit images by itself; as the first of
// two operations it does, the other one being the identity.
std::vector<Step> StepsOf(const ConvolutionShape& shape) {
  std::vector<Step> steps;
  if (shape.bias) steps.push_back(Step::kAddBias);
  if (shape.attributes.activation == graph::Activation::kRelu) steps.push_back(Step::kRelu);
  if (shape.result != shape.type) steps.push_back(Step::kWiden);
  return steps;
}

StatusOr<CudnnDescriptor> StepOperation(Step step, const ConvolutionShape& shape,
                                        const CudnnDescriptor& from, const CudnnDescriptor& to) {
  switch (step) {
    case Step::kAddBias: {
      RING_ASSIGN_OR_RETURN(const CudnnDescriptor bias,
                            Tensor(kBias, shape.bias_layout(), graph::DType::kFloat32));
      return PointwiseOperation(CUDNN_POINTWISE_ADD, from, &bias, to);
    }
    case Step::kRelu:
      return PointwiseOperation(CUDNN_POINTWISE_RELU_FWD, from, nullptr, to);
    case Step::kWiden:
      break;
  }
  return PointwiseOperation(CUDNN_POINTWISE_IDENTITY, from, nullptr, to);
}

// The tensors that lie in memory, and which of them is written.
struct Tensors {
  CudnnDescriptor x, w, y;
  CudnnDescriptor* written = nullptr;
  TensorLayout written_layout;
};

Status MakeTensors(const ConvolutionShape& shape, Tensors* made) {
  const auto make = [&](Uid uid, const TensorLayout& layout, ConvolutionPass writer,
                        CudnnDescriptor* to) -> Status {
    const bool written = shape.pass == writer;
    if (written) made->written = to;
    if (written) made->written_layout = layout;
    RING_ASSIGN_OR_RETURN(*to, Tensor(uid, layout, written ? shape.result : shape.type));
    return absl::OkStatus();
  };
  RING_RETURN_IF_ERROR(make(kX, shape.x(), ConvolutionPass::kInputGradient, &made->x));
  RING_RETURN_IF_ERROR(make(kW, shape.w(), ConvolutionPass::kWeightGradient, &made->w));
  return make(kY, shape.y(), ConvolutionPass::kForward, &made->y);
}

// The convolution, then its steps; between two of them float32 that is never in memory.
StatusOr<std::vector<CudnnDescriptor>> Operations(const ConvolutionShape& shape) {
  Tensors tensors;
  RING_RETURN_IF_ERROR(MakeTensors(shape, &tensors));
  const std::vector<Step> steps = StepsOf(shape);
  CudnnDescriptor result = std::move(*tensors.written);
  std::vector<CudnnDescriptor> between;
  for (size_t i = 0; i < steps.size(); ++i) {
    RING_ASSIGN_OR_RETURN(between.emplace_back(),
                          Tensor(static_cast<Uid>(kBetween + i), tensors.written_layout,
                                 graph::DType::kFloat32, Storage::kVirtual));
  }
  between.push_back(std::move(result));
  // The convolution writes the first of them, and each step the next one.
  std::vector<CudnnDescriptor> operations;
  const auto or_first = [&](const CudnnDescriptor& tensor) -> const CudnnDescriptor& {
    return &tensor == tensors.written ? between[0] : tensor;
  };
  RING_ASSIGN_OR_RETURN(
      operations.emplace_back(),
      ConvolutionOperation(shape, or_first(tensors.x), or_first(tensors.w), or_first(tensors.y)));
  for (size_t i = 0; i < steps.size(); ++i) {
    RING_ASSIGN_OR_RETURN(operations.emplace_back(),
                          StepOperation(steps[i], shape, between[i], between[i + 1]));
  }
  return operations;
}

}  // namespace

StatusOr<ConvolutionPlan> ConvolutionPlan::Finalize(CudnnBuilder builder, const CudnnTarget& target,
                                                    const ConvolutionShape& shape,
                                                    const EngineChoice& engine) {
  if (target.handle != nullptr) {
    builder.Set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target.handle);
  } else {
    builder.Set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
  }
  ConvolutionPlan made;
  made.what_ = fmt::format("{} {} by {}", Name(shape.pass), Key(shape), ToString(engine));
  made.bias_ = shape.bias;
  RING_ASSIGN_OR_RETURN(made.plan_, builder.Finalize(made.what_));
  RING_ASSIGN_OR_RETURN(const int64_t workspace,
                        made.plan_.Get<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  made.workspace_bytes_ = static_cast<size_t>(workspace);
  return made;
}

StatusOr<std::string> ConvolutionPlan::Written() const {
  RING_ASSIGN_OR_RETURN(const auto text,
                        plan_.GetAll<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION));
  return std::string(text.begin(), text.end());
}

StatusOr<ConvolutionPlan> ConvolutionPlan::Restore(const CudnnTarget& target,
                                                   const ConvolutionShape& shape,
                                                   const EngineChoice& engine,
                                                   const std::string& written) {
  CudnnBuilder builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.SetAll(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                 std::span<const char>(written.data(), written.size()));
  return Finalize(std::move(builder), target, shape, engine);
}

StatusOr<std::vector<CudnnDescriptor>> ConvolutionPlan::Packs(
    std::span<const ConvolutionOperands> parts) const {
  const std::array<int64_t, 4> uids = {kX, kW, kY, kBias};
  const size_t used = bias_ ? 4 : 3;
  std::vector<CudnnDescriptor> packs;
  for (const ConvolutionOperands& part : parts) {
    const std::array<void*, 4> addresses = {part.x, part.w, part.y, part.bias};
    auto pack = CudnnBuilder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
                    .SetAll(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, View(uids).first(used))
                    .SetAll(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, View(addresses).first(used))
                    .Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, part.workspace)
                    .Finalize(what_ + ": operands");
    RING_ASSIGN_OR_RETURN(packs.emplace_back(), std::move(pack));
  }
  return packs;
}

Status ConvolutionPlan::Launch(cudnnHandle_t handle, const CudnnDescriptor& pack,
                               cudaStream_t stream) const {
  RING_RETURN_IF_ERROR(FromCudnn(cudnnSetStream(handle, stream), what_));
  const MutexLock lock(*executing_);
  return FromCudnn(cudnnBackendExecute(handle, plan_.raw(), pack.raw()), what_);
}

StatusOr<ConvolutionGraph> ConvolutionGraph::Create(const CudnnTarget& target,
                                                    const ConvolutionShape& shape) {
  (void)CudnnCompiler();
  ConvolutionGraph made;
  made.target_ = target;
  made.shape_ = shape;
  made.what_ = fmt::format("{} {}", Name(shape.pass), Key(shape));
  auto operations = Operations(shape);
  if (!operations.ok()) return Annotate(operations.status(), made.what_);
  CudnnBuilder graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.SetAll(CUDNN_ATTR_OPERATIONGRAPH_OPS, *operations);
  if (target.handle != nullptr) graph.Set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle);
  RING_ASSIGN_OR_RETURN(made.graph_, graph.Finalize(made.what_));
  return made;
}

StatusOr<std::vector<CudnnDescriptor>> ConvolutionGraph::Configs(
    cudnnBackendHeurMode_t mode) const {
  CudnnBuilder builder(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  builder.Set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_).Set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target_.properties != nullptr) {
    builder.Set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target_.properties);
  }
  RING_ASSIGN_OR_RETURN(const CudnnDescriptor heuristics, builder.Finalize(what_ + ": heuristics"));
  RING_ASSIGN_OR_RETURN(const int64_t count,
                        heuristics.CountDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS));
  return heuristics.GetDescriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

StatusOr<ConvolutionGraph::Candidate> ConvolutionGraph::Describe(CudnnDescriptor config) const {
  Candidate made;
  RING_ASSIGN_OR_RETURN(
      const auto engines,
      config.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1));
  if (engines.size() != 1) {
    return Internal("{}: a candidate has {} engines, expected 1", what_, engines.size());
  }
  RING_ASSIGN_OR_RETURN(made.choice.engine,
                        engines[0].Get<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  RING_ASSIGN_OR_RETURN(
      made.notes, engines[0].GetAll<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE));
  RING_ASSIGN_OR_RETURN(
      const auto knobs,
      config.GetDescriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
                            CUDNN_KNOB_TYPE_COUNTS));
  for (const CudnnDescriptor& knob : knobs) {
    RING_ASSIGN_OR_RETURN(const auto type,
                          knob.Get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE));
    RING_ASSIGN_OR_RETURN(const auto value, knob.Get<int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
    made.choice.knobs.emplace_back(type, value);
  }
  std::sort(made.choice.knobs.begin(), made.choice.knobs.end());
  made.config = std::move(config);
  return made;
}

StatusOr<std::vector<ConvolutionGraph::Candidate>> ConvolutionGraph::Candidates() const {
  std::vector<Candidate> candidates;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    auto configs = Configs(mode);
    if (absl::IsUnimplemented(configs.status())) continue;  // none of this kind
    if (!configs.ok()) return configs.status();
    for (CudnnDescriptor& config : *configs) {
      RING_ASSIGN_OR_RETURN(Candidate candidate, Describe(std::move(config)));
      if (!Refusal(candidate.notes, shape_.type).empty()) continue;
      const auto same = [&](const Candidate& known) { return known.choice == candidate.choice; };
      if (std::any_of(candidates.begin(), candidates.end(), same)) continue;
      candidates.push_back(std::move(candidate));
    }
  }
  return candidates;
}

StatusOr<ConvolutionPlan> ConvolutionGraph::Finalize(const Candidate& candidate) const {
  CudnnBuilder builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  builder.Set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, candidate.config);
  return ConvolutionPlan::Finalize(std::move(builder), target_, shape_, candidate.choice);
}

StatusOr<CudnnDescriptor> ConvolutionGraph::Config(const EngineChoice& choice) const {
  CudnnBuilder builder(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  builder.Set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_)
      .Set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
  if (target_.properties != nullptr) {
    builder.Set(CUDNN_ATTR_ENGINE_DEVICEPROP, *target_.properties);
  }
  RING_ASSIGN_OR_RETURN(const CudnnDescriptor engine, builder.Finalize(ToString(choice)));
  std::vector<CudnnDescriptor> knobs;
  for (const auto& [type, value] : choice.knobs) {
    RING_ASSIGN_OR_RETURN(
        CudnnDescriptor knob,
        CudnnBuilder(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
            .Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, static_cast<cudnnBackendKnobType_t>(type))
            .Set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value)
            .Finalize(fmt::format("knob {}={}", type, value)));
    knobs.push_back(std::move(knob));
  }
  CudnnBuilder config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  config.Set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  if (!knobs.empty()) config.SetAll(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  return config.Finalize(ToString(choice));
}

StatusOr<ConvolutionPlan> ConvolutionGraph::Finalize(const EngineChoice& choice) const {
  auto config = Config(choice);
  if (!config.ok()) return Annotate(config.status(), what_);
  RING_ASSIGN_OR_RETURN(const Candidate candidate, Describe(*std::move(config)));
  const std::string refusal = Refusal(candidate.notes, shape_.type);
  if (!refusal.empty()) {
    return FailedPrecondition("{}: {} may not compute it: {}", what_, ToString(choice), refusal);
  }
  return Finalize(candidate);
}

// Which one is chosen.

namespace {

StatusOr<ChosenConvolution> FromTable(const CudnnTarget& target, const ConvolutionShape& shape,
                                      const ConvolutionChoice& choice) {
  ChosenConvolution made = {choice, {}};
  const auto finalize = [&]() -> StatusOr<ConvolutionPlan> {
    RING_ASSIGN_OR_RETURN(const auto graph,
                          ConvolutionGraph::Create(target, Apply(shape, choice.variant)));
    return graph.Finalize(choice.engine);
  };
  auto plan = finalize();
  if (!plan.ok()) {
    return FailedPrecondition(
        "{}; the engine is of the kernel table: delete the row, and run `ringctl tune` again",
        Message(plan.status()));
  }
  made.plan = *std::move(plan);
  return made;
}

// nullopt: no candidate of the variant can compute it.
StatusOr<std::optional<ChosenConvolution>> FirstOf(const CudnnTarget& target,
                                                   const ConvolutionShape& shape,
                                                   const ConvolutionVariant& variant) {
  ChosenConvolution made = {{variant, {}}, {}};
  const auto graph = ConvolutionGraph::Create(target, Apply(shape, variant));
  if (absl::IsUnimplemented(graph.status())) return std::optional<ChosenConvolution>();
  if (!graph.ok()) return graph.status();
  RING_ASSIGN_OR_RETURN(const auto candidates, graph->Candidates());
  std::vector<std::optional<ConvolutionPlan>> plans(candidates.size());
  RING_ASSIGN_OR_RETURN(
      const auto first,
      ChooseFirst(candidates.size(), kConvolutionWorkspaceCap, [&](size_t i) -> StatusOr<size_t> {
        RING_ASSIGN_OR_RETURN(plans[i], graph->Finalize(candidates[i]));
        return plans[i]->workspace_bytes();
      }));
  if (!first) return std::optional<ChosenConvolution>();
  made.choice.engine = candidates[*first].choice;
  made.plan = *std::move(plans[*first]);
  return std::optional<ChosenConvolution>(std::move(made));
}

}  // namespace

std::string CudnnVersion() { return fmt::format("cudnn {}", cudnnGetVersion()); }

PlanKey ConvolutionKey(const std::string& device, const ConvolutionShape& shape) {
  return {device, CudnnVersion(), Name(shape.pass), Key(shape)};
}

std::optional<PlanRequest> PlanRequestOf(const graph::Graph& graph, const graph::Node& node,
                                         const std::string& device, const PlanTable& table) {
  const auto shape = ConvolutionOf(graph, node);
  if (!shape || shape->is_depthwise() || MatmulOf(graph, node)) return std::nullopt;
  PlanRequest request = {PartOf(*shape, PartsOf(*shape)), std::nullopt};
  const auto* const row = table.Find<ConvolutionChoice>(ConvolutionKey(device, request.shape));
  if (row != nullptr) request.row = *row;
  return request;
}

std::string Key(const PlanRequest& request) {
  const bool first = request.shape.pass == ConvolutionPass::kWeightGradient;
  std::string key =
      fmt::format("{} {} {}", first ? 0 : 1, Name(request.shape.pass), Key(request.shape));
  if (request.row) key += " as " + ToString(PlanChoice(*request.row));
  return key;
}

StatusOr<ChosenConvolution> RestoreConvolution(const CudnnTarget& target,
                                               const PlanRequest& request,
                                               const ConvolutionChoice& choice,
                                               const std::string& written) {
  ChosenConvolution made = {choice, {}};
  RING_ASSIGN_OR_RETURN(made.plan,
                        ConvolutionPlan::Restore(target, Apply(request.shape, choice.variant),
                                                 choice.engine, written));
  return made;
}

StatusOr<ChosenConvolution> ChooseConvolution(const CudnnTarget& target, const std::string& device,
                                              const PlanRequest& request) {
  const ConvolutionShape& shape = request.shape;
  if (request.row) return FromTable(target, shape, *request.row);
  for (const ConvolutionVariant& variant : Variants(shape)) {
    RING_ASSIGN_OR_RETURN(auto chosen, FirstOf(target, shape, variant));
    if (chosen) return *std::move(chosen);
  }
  return Error(absl::StatusCode::kUnimplemented,
               "{} {}: no engine of {} computes it on {} with the same bits on every run; try "
               "another policy",
               Name(shape.pass), Key(shape), CudnnVersion(), device);
}

}  // namespace ringmaster::cuda
