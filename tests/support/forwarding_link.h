// A link that does what another one does, which outlives it: the base of links that watch or change
// one thing. Threads and errors as of the other link.
#pragma once

#include <chrono>
#include <memory>
#include <utility>

#include "common/status.h"
#include "worker/ring/link.h"

namespace ringmaster::ring {

class ForwardingLink : public Link {
 public:
  explicit ForwardingLink(Link* link) : link_(link) {}
  Status Send(const FrameHeader& header, const Payload& payload,
              std::chrono::steady_clock::time_point deadline) override {
    return link_->Send(header, payload, deadline);
  }
  StatusOr<Frame> Receive(std::chrono::steady_clock::time_point deadline) override {
    return link_->Receive(deadline);
  }
  StatusOr<Arrival> Await(std::chrono::steady_clock::time_point deadline) override {
    return link_->Await(deadline);
  }
  [[nodiscard]] std::shared_ptr<uint8_t> Lend(size_t bytes) override { return link_->Lend(bytes); }
  void SetUrgent(bool urgent) override { link_->SetUrgent(urgent); }
  void Nudge() override { link_->Nudge(); }
  void Cancel(Status reason) override { link_->Cancel(std::move(reason)); }
  [[nodiscard]] uint64_t bytes_sent() const override { return link_->bytes_sent(); }

 private:
  Link* const link_;
};

}  // namespace ringmaster::ring
