#include "common/status.h"

#include <catch2/catch.hpp>

namespace ringmaster {
namespace {

TEST_CASE("Status: what an error says to programs stays when it is annotated, again and again") {
  Status status = WithDetail("a", "1", DataLoss("record {}", 7));
  status = WithDetail("b", "2", Annotate(Annotate(status, "train.bin"), "shard 3"));
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(Message(status) == "shard 3: train.bin: record 7");
  CHECK(DetailOf("a", status) == "1");
  CHECK(DetailOf("b", status) == "2");
  CHECK(DetailOf("c", status).empty());
}

TEST_CASE("Status: who says it first knows best, and where nothing is wrong nobody says why") {
  CHECK(DetailOf("a", WithDetail("a", "2", WithDetail("a", "1", Internal("bad")))) == "1");
  CHECK(WithDetail("a", "1", absl::OkStatus()).ok());
  CHECK(DetailOf("a", WithDetail("a", "1", absl::OkStatus())).empty());
  CHECK(Annotate(absl::OkStatus(), "shard 3").ok());
}

}  // namespace
}  // namespace ringmaster
