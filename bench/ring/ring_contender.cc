// Ringmaster's own ring over gRPC, between one user's processes of a host, or with TLS as between
// hosts.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "bench/ring/contender.h"
#include "common/exact/block_layout.h"
#include "common/pki/authority.h"
#include "common/pki/credential_folder.h"
#include "common/pki/identity.h"
#include "common/pki/key.h"
#include "common/rpc/channel.h"
#include "common/rpc/credentials.h"
#include "worker/ring/all_reduce.h"
#include "worker/ring/array_reduction.h"
#include "worker/ring/grpc/ring_port.h"

namespace ringmaster::bench {
namespace {

constexpr int kPrecisionBits = 21;
constexpr char kCluster[] = "bench";
constexpr char kOverTcp[] = "_tcp";
constexpr char kWithTls[] = "_tls";

// How payloads go between members.
enum class Way : uint8_t { kMemory, kTcp, kTls };

std::string NameOf(uint32_t rank) { return fmt::format("member{}", rank); }

std::string CredentialsOf(const Member& member, uint32_t rank) {
  return member.folder / fmt::format("{}.pki", rank);
}

// For all members, of an authority that nobody keeps.
Status MakeCredentials(const Member& member) {
  const pki::Time now = pki::SystemTime();
  RING_ASSIGN_OR_RETURN(const pki::Authority authority, pki::Authority::Create(kCluster, now));
  for (uint32_t rank = 0; rank < member.size; ++rank) {
    RING_ASSIGN_OR_RETURN(const pki::Key key, pki::Key::Generate());
    RING_ASSIGN_OR_RETURN(const std::string request, key.SigningRequest());
    RING_ASSIGN_OR_RETURN(const pki::Certificate certificate,
                          authority.Issue(request, {kCluster, pki::Kind::kWorker, NameOf(rank)},
                                          pki::kLeafValidity, now));
    RING_RETURN_IF_ERROR(pki::WriteCredentials(CredentialsOf(member, rank), key, certificate,
                                               {authority.certificate()}));
  }
  return absl::OkStatus();
}

// As a worker with a certificate.
StatusOr<ring::PortOptions> WithTls(const Member& member) {
  if (member.rank == 0) {
    RING_RETURN_IF_ERROR(MakeCredentials(member));
  } else {
    RING_RETURN_IF_ERROR(ReadPublished(member, 0).status());  // it made them
  }
  const std::string folder = CredentialsOf(member, member.rank);
  ring::PortOptions options;
  RING_ASSIGN_OR_RETURN(options.security.tls, ServerTls(folder));
  options.dialer = Dialer(folder);
  return options;
}

class RingContender : public Contender {
 public:
  RingContender(ring::ArraySums sums, Way way, const Member& member)
      : sums_(sums), way_(way), member_(member) {}
  ~RingContender() override {
    reduce_.reset();
    link_.reset();
    if (port_ != nullptr) port_->Stop();
  }

  Status Connect() {
    ring::PortOptions port;
    if (way_ == Way::kTls) {
      RING_ASSIGN_OR_RETURN(port, WithTls(member_));
    }
    port.shares_memory = way_ == Way::kMemory;
    RING_ASSIGN_OR_RETURN(port_, ring::RingPort::Create({member_.host, 0}, port));
    Publish(member_, fmt::format("{}:{}", member_.host, port_->port()));
    const uint32_t next = (member_.rank + 1) % member_.size;
    const uint32_t before = (member_.rank + member_.size - 1) % member_.size;
    ring::LinkOptions options;
    options.job_id = "bench";
    options.generation = {1, 1};
    RING_ASSIGN_OR_RETURN(options.successor_address, ReadPublished(member_, next));
    options.successor_name = NameOf(next);
    options.self_name = NameOf(member_.rank);
    options.self_incarnation = options.self_name;
    options.predecessor_name = NameOf(before);
    options.predecessor_incarnation = NameOf(before);
    options.largest_payload = ring::AllReduce::LargestPayload({});
    RING_ASSIGN_OR_RETURN(link_,
                          port_->Connect(options, std::chrono::steady_clock::now() + kPatience));
    reduce_.emplace(link_.get(), ring::Position{member_.rank, member_.size}, ring::ReduceOptions{});
    return absl::OkStatus();
  }

  Status Load(std::span<const float> own) override {
    array_.emplace(own, member_.size);
    if (sums_ == ring::ArraySums::kFloat32) return absl::OkStatus();
    // Units come from the sums of a step before, as in a job.
    RING_RETURN_IF_ERROR(array_->Reduce(&*reduce_, NextContext(), ring::ArraySums::kFloat32));
    std::vector<int> units;
    for (size_t b = 0; b < array_->blocks().size(); ++b) units.push_back(UnitOf(b));
    array_->UseUnits(std::move(units));
    return absl::OkStatus();
  }

  void UseUnits(std::span<const int16_t> exponents) override {
    if (sums_ != ring::ArraySums::kFloat32) array_->UseUnits({exponents.begin(), exponents.end()});
  }

  Status Reduce() override { return array_->Reduce(&*reduce_, NextContext(), sums_); }

  [[nodiscard]] std::span<const float> sums() const override { return array_->reduced(); }

 private:
  [[nodiscard]] int UnitOf(size_t block) const {
    float largest = 1e-30F;
    for (const float value :
         array_->reduced().subspan(block * exact::kBlockElements, array_->blocks()[block].count)) {
      largest = std::max(largest, std::fabs(value));
    }
    return std::clamp(std::ilogb(largest) - kPrecisionBits, -40, 119);
  }

  ring::Context NextContext() {
    return {.job = ring::JobHash("bench"), .generation = {1, 1}, .step = ++step_};
  }

  const ring::ArraySums sums_;
  const Way way_;
  const Member member_;
  std::unique_ptr<ring::RingPort> port_;
  std::unique_ptr<ring::Link> link_;
  std::optional<ring::AllReduce> reduce_;
  std::optional<ring::ArrayReduction> array_;
  uint64_t step_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Contender>> MakeRing(const std::string& name, const Member& member) {
  const ring::ArraySums sums = name.starts_with("exact")      ? ring::ArraySums::kExact
                               : name.starts_with("integers") ? ring::ArraySums::kIntegers
                                                              : ring::ArraySums::kFloat32;
  const Way way = name.ends_with(kWithTls)   ? Way::kTls
                  : name.ends_with(kOverTcp) ? Way::kTcp
                                             : Way::kMemory;
  auto contender = std::make_unique<RingContender>(sums, way, member);
  RING_RETURN_IF_ERROR(contender->Connect());
  return contender;
}

}  // namespace ringmaster::bench
