#include "worker/fetch/data_list.h"

#include <catch2/catch.hpp>

#include "tests/worker/fetch/fake_data.h"

namespace ringmaster::worker {
namespace {

TEST_CASE("DataList: its text is read again, and any change of it is noticed") {
  DataList list = ListOf({{"a b", "x"}, {"empty", ""}, {"sub/c", "yz"}}, "https://host/a b\\c\nd");
  list.files[2].version = "\"etag with blank\"";
  REQUIRE(list.Check().ok());
  list.origin = std::string(64, 'a');
  const std::string text = list.ToText();
  const StatusOr<DataList> again = DataList::FromText(text);
  REQUIRE(again.ok());
  CHECK(again->path == list.path);
  CHECK(again->origin == list.origin);
  REQUIRE(again->files.size() == 3);
  CHECK(again->files[0].name == "a b");
  CHECK(again->files[1].bytes == 0);
  CHECK(again->files[2].pieces == list.files[2].pieces);
  CHECK(again->files[2].version == list.files[2].version);
  CHECK(again->Id() == list.Id());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] ^= 1;
    INFO(at);
    CHECK_FALSE(DataList::FromText(damaged).ok());
    CHECK_FALSE(DataList::FromText(text.substr(0, at)).ok());
  }
}

TEST_CASE("DataList: the same files have the same id wherever they come from") {
  const DataList list = ListOf({{"a", "x"}, {"b", "y"}});
  DataList other = ListOf({{"a", "x"}, {"b", "y"}}, "another/path");
  other.files[0].version = "etag";
  CHECK(list.Id() == other.Id());
  CHECK(list.Id() != ListOf({{"a", "x"}, {"b", "z"}}).Id());
  CHECK(list.Id() != ListOf({{"a", "x"}, {"c", "y"}}).Id());
}

TEST_CASE("DataList: without SHA-256 path, sizes and versions tell datasets apart") {
  DataList list = ListOf({{"a", "x"}}, "https://host/data");
  list.files[0].pieces.clear();
  CHECK(list.Id().empty());  // nothing can tell
  list.files[0].version = "1";
  const std::string id = list.Id();
  CHECK(id.size() == 64);
  list.files[0].version = "2";
  CHECK(list.Id() != id);
  list.files[0].version = "1";
  list.path = "https://other/data";
  CHECK(list.Id() != id);
}

TEST_CASE("DataList: lists that cannot be are refused") {
  const auto refused = [](DataList list) {
    return list.Check().code() == absl::StatusCode::kInvalidArgument;
  };
  CHECK(refused(ListOf({})));
  for (const char* name : {"../a", "/a", "a/../b", ".a", ""}) {
    INFO(name);
    CHECK(refused(ListOf({{name, "x"}})));
  }
  CHECK(refused(ListOf({{"a", "x"}, {"a/b", "y"}})));
  DataList twice = ListOf({{"a", "x"}});
  twice.files.push_back(twice.files[0]);
  CHECK(refused(twice));
  DataList pieces = ListOf({{"a", "x"}});
  pieces.files[0].pieces.resize(2);
  CHECK(refused(pieces));
  DataList huge = ListOf({{"a", "x"}});
  huge.files[0].bytes = ~uint64_t{0};
  huge.files[0].pieces.clear();
  CHECK(refused(huge));
}

}  // namespace
}  // namespace ringmaster::worker
