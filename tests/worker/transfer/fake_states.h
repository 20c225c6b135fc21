// A source of states that does as it is told, on a port of its own. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "common/check.h"
#include "ringmaster/v1/states.grpc.pb.h"

namespace ringmaster::worker {

class FakeStates : public v1::States::Service {
 public:
  using Writer = grpc::ServerWriter<v1::StatePiece>;
  using Answer = std::function<grpc::Status(const v1::FetchRequest&, Writer*)>;

  explicit FakeStates(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    RING_CHECK(server_ != nullptr, "the fake listens");
  }
  ~FakeStates() override { server_->Shutdown(std::chrono::system_clock::now()); }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest* request,
                     Writer* writer) override {
    return answer_(*request, writer);
  }

  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace ringmaster::worker
