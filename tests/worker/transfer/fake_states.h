// A source of states that does as it is told, on a port of its own, a thread a call. Thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/mutex.h"
#include "ringmaster/v1/states.grpc.pb.h"
#include "tests/worker/transfer/gate.h"

namespace ringmaster::worker {

class FakeStates : public v1::States::WithRawCallbackMethod_Fetch<v1::States::Service> {
 public:
  class Writer : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
   public:
    // False: the fetcher left.
    bool Write(const std::string& message) {
      const grpc::Slice slice(message);
      message_ = grpc::ByteBuffer(&slice, 1);
      written_ = std::make_unique<Gate>();
      StartWrite(&message_);
      return written_->Await() && ok_;
    }

   private:
    void OnWriteDone(bool ok) override {
      ok_ = ok;
      written_->Open();
    }
    void OnCancel() override {}
    void OnDone() override { delete this; }

    grpc::ByteBuffer message_;
    std::unique_ptr<Gate> written_;
    bool ok_ = false;
  };
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
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Fetch(grpc::CallbackServerContext*,
                                                    const grpc::ByteBuffer* bytes) override {
    grpc::ByteBuffer message = *bytes;
    v1::FetchRequest request;
    RING_CHECK(grpc::SerializationTraits<v1::FetchRequest>::Deserialize(&message, &request).ok(),
               "a request");
    auto* writer = new Writer();
    MutexLock lock(mu_);
    calls_.emplace_back([this, request, writer] { writer->Finish(answer_(request, writer)); });
    return writer;
  }

  const Answer answer_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mu_;
  std::vector<std::jthread> calls_ ABSL_GUARDED_BY(mu_);  // last: they use the rest
};

}  // namespace ringmaster::worker
