// A worker or the coordinator as a source of a dataset's files: the fetching end of DataFiles
// (data.proto), on a connection of its own, so that nothing else waits behind the data.
// Thread-safe.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "common/net/address.h"
#include "common/rpc/channel.h"
#include "common/status.h"
#include "ringmaster/v1/data.grpc.pb.h"
#include "worker/fetch/piece_source.h"

namespace ringmaster::worker {

struct PeerOptions {
  std::string called;  // for messages: "worker b", "the coordinator"
  Address address;
  ExpectedPeer expected;  // who has to be there
  Dialer dialer;
  v1::DataAsker asker;  // but for the ticket
  std::function<std::string()> ticket = []() { return std::string(); };
  // A ticket that is not valid will be soon: its session is being opened again.
  bool ticket_changes = false;
  std::chrono::milliseconds silence{20'000};  // between two messages of a call
};

class PeerSource : public PieceSource {
 public:
  explicit PeerSource(PeerOptions options);

  [[nodiscard]] std::string name() const override;
  // Of the limits the stop token alone: hashing takes as long as it takes, as long as messages
  // come.
  [[nodiscard]] StatusOr<std::vector<SourceFile>> List(const FetchLimits& limits) override;
  [[nodiscard]] Status Read(const SourceFile& file, uint64_t offset, std::span<uint8_t> out,
                            const FetchLimits& limits) override;

 private:
  void Connect(const std::stop_token& stop) const;
  [[nodiscard]] v1::DataAsker Asker() const;
  // How a call ended that did not bring all.
  [[nodiscard]] Status Ended(const grpc::Status& status, bool late) const;

  const PeerOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::DataFiles::Stub> stub_;
};

}  // namespace ringmaster::worker
