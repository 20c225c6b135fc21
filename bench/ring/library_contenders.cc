// What users have today: gloo and OpenMPI, where they were there when this was built.
#include "bench/ring/contender.h"

#ifdef RING_BENCH_GLOO
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#endif
#ifdef RING_BENCH_MPI
#define OMPI_SKIP_MPICXX 1  // its C++ bindings, whose library is not linked
#include <mpi.h>
#endif

#include <algorithm>
#include <vector>

namespace ringmaster::bench {
namespace {

// They add up in place.
class InPlace : public Contender {
 public:
  Status Load(std::span<const float> own) override {
    data_.assign(own.begin(), own.end());
    return absl::OkStatus();
  }
  [[nodiscard]] std::span<const float> sums() const override { return data_; }

 protected:
  std::vector<float> data_;
};

#ifdef RING_BENCH_GLOO
class GlooContender : public InPlace {
 public:
  GlooContender(const Member& member, bool halving) : halving_(halving) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = member.host;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(member.rank),
                                                               static_cast<int>(member.size));
    gloo::rendezvous::FileStore store(member.folder.string());
    context->connectFullMesh(store, device);
    context_ = std::move(context);
  }

  Status Load(std::span<const float> own) override {
    RING_RETURN_IF_ERROR(InPlace::Load(own));
    if (!halving_) return absl::OkStatus();
    algorithm_ = std::make_unique<gloo::AllreduceHalvingDoubling<float>>(
        context_, std::vector<float*>{data_.data()}, static_cast<int>(data_.size()),
        gloo::ReductionFunction<float>::sum);
    return absl::OkStatus();
  }

  // Gloo's errors are exceptions; here one of them ends the program, which the driver sees.
  Status Reduce() override {
    if (halving_) {
      algorithm_->run();
      return absl::OkStatus();
    }
    gloo::AllreduceOptions options(context_);
    options.setOutput(data_.data(), data_.size());
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    using Function = void (*)(void*, const void*, const void*, size_t);
    options.setReduceFunction(static_cast<Function>(&gloo::sum<float>));
    gloo::allreduce(options);
    return absl::OkStatus();
  }

 private:
  const bool halving_;
  std::shared_ptr<gloo::Context> context_;
  std::unique_ptr<gloo::AllreduceHalvingDoubling<float>> algorithm_;
};
#endif

#ifdef RING_BENCH_MPI
class MpiContender : public InPlace {
 public:
  MpiContender() { MPI_Init(nullptr, nullptr); }
  ~MpiContender() override { MPI_Finalize(); }

  Status Reduce() override {
    const int result = MPI_Allreduce(MPI_IN_PLACE, data_.data(), static_cast<int>(data_.size()),
                                     MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (result == MPI_SUCCESS) return absl::OkStatus();
    return Internal("MPI_Allreduce: error {}", result);
  }
};
#endif

}  // namespace

StatusOr<std::unique_ptr<Contender>> MakeGloo([[maybe_unused]] const std::string& name,
                                              [[maybe_unused]] const Member& member) {
#ifdef RING_BENCH_GLOO
  return std::make_unique<GlooContender>(member, name == "gloo_halving");
#else
  return Error(absl::StatusCode::kNotFound, "built without gloo (Debian: libgloo-dev)");
#endif
}

StatusOr<std::unique_ptr<Contender>> MakeMpi(const Member& /*member*/) {
#ifdef RING_BENCH_MPI
  return std::make_unique<MpiContender>();
#else
  return Error(absl::StatusCode::kNotFound, "built without MPI (Debian: libopenmpi-dev)");
#endif
}

}  // namespace ringmaster::bench
