#include "common/rpc/clean_strings.h"

#include <catch2/catch.hpp>

#include "ringmaster/v1/fleet.pb.h"
#include "ringmaster/v1/jobs.pb.h"

namespace ringmaster {
namespace {

TEST_CASE("Clean strings: every text of a message, however deep, and no bytes") {
  v1::WorkerMessage message;
  v1::Attach& attach = *message.mutable_attach();
  attach.set_name("a\nb");
  attach.set_digest("\n\x1b");  // bytes
  attach.add_known_shard_sha256("fine");
  attach.add_known_shard_sha256("\x1b[2J");
  attach.mutable_numerics_class()->set_backend("\xe2\x80\xae");
  CleanStrings(&message, 100);
  CHECK(attach.name() == "a\\nb");
  CHECK(attach.digest() == "\n\x1b");
  CHECK(attach.known_shard_sha256(0) == "fine");
  CHECK(attach.known_shard_sha256(1) == "\\x1b[2J");
  CHECK(attach.numerics_class().backend() == "\\u202e");

  v1::ListWorkersResponse workers;
  workers.add_workers()->set_ring_address(std::string(1'000, 'x'));
  CleanStrings(&workers, 100);
  CHECK(workers.workers(0).ring_address().size() <= 100);
}

}  // namespace
}  // namespace ringmaster
