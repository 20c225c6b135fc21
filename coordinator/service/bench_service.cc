#include "coordinator/service/bench_service.h"

#include <memory>
#include <optional>
#include <utility>

#include "common/mutex.h"
#include "common/rpc/rpc_status.h"

namespace ringmaster::coordinator {
namespace {

// Lives until gRPC is done with it: it holds itself until then.
class BenchCall : public CountedCall<grpc::ServerUnaryReactor>,
                  public BenchCallback,
                  public std::enable_shared_from_this<BenchCall> {
 public:
  BenchCall(ControlLoop& control, BenchTable& benches, v1::AllReduceReport& response,
            std::shared_ptr<OpenCall> call)
      : CountedCall(std::move(call)), control_(control), benches_(benches), response_(response) {}

  void Begin(const v1::AllReduceRequest& request) {
    self_ = shared_from_this();
    id_ = benches_.Add(self_);
    if (!id_) {
      return End({Error(absl::StatusCode::kResourceExhausted,
                        "{} measurements are asked for at once; try again", BenchTable::kMost),
                  "OVERLOADED"},
                 {});
    }
    Tell(BenchAsked{*id_, request});
  }

  void End(const Refusal& refusal, const v1::AllReduceReport& report) override {
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
    }
    if (refusal.status.ok()) response_ = report;
    Finish(ToGrpc(refusal.status, refusal.word));
  }

 private:
  void OnCancel() override {
    if (id_) Tell(BenchDropped{*id_});
  }
  void OnDone() override {
    call_->Leave();
    if (id_) benches_.Remove(*id_);
    self_.reset();  // may destroy this
  }
  void Tell(Event event) {
    Status posted = control_.Post(std::move(event));
    if (!posted.ok()) End({std::move(posted), "UNAVAILABLE"}, {});
  }

  ControlLoop& control_;
  BenchTable& benches_;
  v1::AllReduceReport& response_;
  std::shared_ptr<BenchCall> self_;
  std::optional<BenchId> id_;

  Mutex mu_;
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* BenchService::AllReduce(grpc::CallbackServerContext* context,
                                                  const v1::AllReduceRequest* request,
                                                  v1::AllReduceReport* response) {
  OpenCalls::Entry entry = calls_.Enter(context, {"Bench/AllReduce", CallKind::kLasting});
  if (!entry.call) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(ToGrpc(entry.refusal.status, entry.refusal.word));
    return reactor;
  }
  const auto call =
      std::make_shared<BenchCall>(control_, benches_, *response, std::move(entry.call));
  call->Begin(*request);
  return call.get();
}

}  // namespace ringmaster::coordinator
