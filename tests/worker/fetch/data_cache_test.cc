#include "worker/fetch/data_cache.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <future>

#include "tests/support/temporary_folder.h"
#include "tests/worker/fetch/fake_data.h"

namespace ringmaster::worker {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = kPieceBytes;

std::span<const uint8_t> PieceOf(const FakeFiles& files, const DataList& list, PieceId id) {
  const std::string& content = files.at(list.files[id.file].name);
  const size_t begin = id.piece * kPiece;
  return {reinterpret_cast<const uint8_t*>(content.data()) + begin,
          std::min(kPiece, content.size() - begin)};
}

// Writes all that is missing, but the last so many pieces.
void Fill(PartialData* partial, const FakeFiles& files, size_t but = 0) {
  std::vector<PieceId> missing = partial->Missing();
  missing.resize(missing.size() - but);
  for (const PieceId id : missing) {
    REQUIRE(partial->Write(id, PieceOf(files, partial->list(), id)).ok());
  }
}

std::shared_ptr<const CachedData> FetchInto(DataCache* cache, const FakeFiles& files,
                                            const std::string& path = "data") {
  StatusOr<DataCache::Entry> entry = cache->Open(ListOf(files, path), {});
  REQUIRE(entry.ok());
  if (entry->whole) return entry->whole;
  Fill(entry->partial.get(), files);
  auto whole = cache->Finish(std::move(entry->partial));
  REQUIRE(whole.ok());
  return *whole;
}

// As some of it was used at a time long ago; the larger, the later.
void UsedAt(const std::string& entry, time_t when) {
  timespec times[2] = {{when, 0}, {when, 0}};
  REQUIRE(utimensat(AT_FDCWD, (entry + "/lock").c_str(), times, 0) == 0);
}

std::vector<std::string> EntriesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& at : fs::directory_iterator(folder)) {
    if (at.is_directory()) names.push_back(at.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

TEST_CASE("DataCache: an entry is whole with every file, and is found again") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache"});
  const FakeFiles files = {
      {"a", Content(2 * kPiece + 5, 'a')}, {"empty", ""}, {"x/y/b", "small"}, {"x/z", "other"}};
  const std::shared_ptr<const CachedData> data = FetchInto(&cache, files);
  for (const auto& [name, content] : files) {
    CHECK((ReadWhole(data->folder() + "/files/" + name) == content));  // not printed: it is long
  }
  CHECK(EntriesIn(folder / "cache") == std::vector{ListOf(files).Id()});
  const auto again = cache.Open(ListOf(files, "another path"), {});
  REQUIRE(again.ok());
  REQUIRE(again->whole);
  CHECK(again->whole->folder() == data->folder());
  const auto by_path = cache.FindPath("data");
  REQUIRE(by_path.ok());
  REQUIRE(*by_path);
  CHECK(*cache.FindPath("unknown") == nullptr);
}

TEST_CASE("DataCache: what came is there for the next time") {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a", Content(3 * kPiece, 'a')}, {"b", "small"}};
  {
    DataCache cache({folder / "cache"});
    auto entry = cache.Open(ListOf(files), {});
    REQUIRE(entry.ok());
    CHECK(entry->partial->done_bytes() == 0);
    Fill(entry->partial.get(), files, 2);
  }
  DataCache cache({folder / "cache"});
  auto entry = cache.Open(ListOf(files), {});
  REQUIRE(entry.ok());
  CHECK(entry->partial->done_bytes() == 2 * kPiece);
  CHECK(entry->partial->Missing() == std::vector<PieceId>{{0, 2}, {1, 0}});
  Fill(entry->partial.get(), files);
  const auto whole = cache.Finish(std::move(entry->partial));
  REQUIRE(whole.ok());
  CHECK((ReadWhole((*whole)->folder() + "/files/a") == files.at("a")));  // not printed: it is long
}

TEST_CASE("DataCache: an entry that lacks pieces does not become whole") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache"});
  const FakeFiles files = {{"a", Content(2 * kPiece, 'a')}};
  auto entry = cache.Open(ListOf(files), {});
  Fill(entry->partial.get(), files, 1);
  CHECK_FALSE(cache.Finish(std::move(entry->partial)).ok());
  CHECK(*cache.FindPath("data") == nullptr);
}

// An entry of two pieces of `a` and one of `b`, and what is missing after something was done to it.
std::vector<PieceId> MissingAfter(const std::function<void(const std::string& entry)>& harm) {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a", Content(2 * kPiece, 'a')}, {"b", Content(100, 'b')}, {"c", "c"}};
  DataCache cache({folder / "cache"});
  {
    auto entry = cache.Open(ListOf(files), {});
    Fill(entry->partial.get(), files, 1);
  }
  harm(folder / "cache/" + ListOf(files).Id() + ".partial");
  auto entry = cache.Open(ListOf(files), {});
  REQUIRE(entry.ok());
  REQUIRE(entry->partial);
  std::vector<PieceId> missing = entry->partial->Missing();
  // However it was harmed, it can be made whole.
  Fill(entry->partial.get(), files);
  entry->partial.reset();
  entry = cache.Open(ListOf(files), {});
  CHECK(entry->partial->Missing().empty());
  const auto whole = cache.Finish(std::move(entry->partial));
  REQUIRE(whole.ok());
  for (const auto& [name, content] : files) {
    CHECK(
        (ReadWhole((*whole)->folder() + "/files/" + name) == content));  // not printed: it is long
  }
  return missing;
}

TEST_CASE("DataCache: what is damaged of an entry is fetched again, and nothing else") {
  using Ids = std::vector<PieceId>;
  CHECK(MissingAfter([](const std::string&) {}) == Ids{{2, 0}});
  const auto with_records = [](const std::function<void(std::string*)>& change) {
    return [change](const std::string& entry) {
      std::string records = ReadWhole(entry + "/pieces");
      change(&records);
      WriteWhole(entry + "/pieces", records);
    };
  };
  // A bit of the second record, half of the last one, all of them, and others behind them.
  CHECK(MissingAfter(with_records([](std::string* r) { (*r)[44 + 20] ^= 4; })) ==
        Ids{{0, 1}, {2, 0}});
  CHECK(MissingAfter(with_records([](std::string* r) { r->resize(r->size() - 7); })) ==
        Ids{{1, 0}, {2, 0}});
  CHECK(MissingAfter(with_records([](std::string* r) { r->clear(); })) ==
        Ids{{0, 0}, {0, 1}, {1, 0}, {2, 0}});
  CHECK(MissingAfter(with_records([](std::string* r) { *r += std::string(100, '\xff'); })) ==
        Ids{{2, 0}});
  // A file of another length, or none.
  CHECK(MissingAfter([](const std::string& entry) { fs::resize_file(entry + "/files/a", 100); }) ==
        Ids{{0, 0}, {0, 1}, {2, 0}});
  CHECK(MissingAfter([](const std::string& entry) { fs::remove(entry + "/files/b"); }) ==
        Ids{{1, 0}, {2, 0}});
  CHECK(MissingAfter([](const std::string& entry) { fs::remove(entry + "/list"); }) == Ids{{2, 0}});
}

TEST_CASE(
    "DataCache: a record that is damaged is none, also where no list says what it should be") {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a", Content(2 * kPiece, 'a')}};
  DataList list = ListOf(files);
  list.files[0].pieces.clear();
  list.files[0].version = "etag";
  DataCache cache({folder / "cache"});
  Fill(cache.Open(list, {})->partial.get(), files);
  const std::string records = folder / "cache/" + list.Id() + ".partial/pieces";
  std::string text = ReadWhole(records);
  text[20] ^= 1;
  WriteWhole(records, text);
  CHECK(cache.Open(list, {})->partial->Missing() == std::vector<PieceId>{{0, 0}});
}

TEST_CASE("DataCache: a whole entry that lost something is not used") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache"});
  const FakeFiles files = {{"a", "content"}, {"b", "other"}};
  const std::string entry = FetchInto(&cache, files)->folder();
  SECTION("a file is cut") { fs::resize_file(entry + "/files/a", 3); }
  SECTION("a file is gone") { fs::remove(entry + "/files/b"); }
  SECTION("its list is damaged") { WriteWhole(entry + "/list", "ringmaster data 1\n"); }
  CHECK(*cache.FindPath("data") == nullptr);
  auto again = cache.Open(ListOf(files), {});
  REQUIRE(again.ok());
  REQUIRE(again->partial);
  CHECK(again->partial->Missing().size() == 2);
}

TEST_CASE("DataCache: a link that was put into an entry is not followed") {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a/b", "content"}, {"c", "other"}};
  DataCache cache({folder / "cache"});
  auto entry = cache.Open(ListOf(files), {});
  REQUIRE(entry.ok());
  fs::create_directories(folder / "elsewhere");
  WriteWhole(folder / "elsewhere/b", "precious");
  WriteWhole(folder / "precious", "precious");
  const std::string inside = entry->partial->folder() + "/files/";
  fs::create_symlink(folder / "elsewhere", inside + "a");
  fs::create_symlink(folder / "precious", inside + "c");
  for (const PieceId id : entry->partial->Missing()) {
    CHECK_FALSE(entry->partial->Write(id, PieceOf(files, entry->partial->list(), id)).ok());
  }
  CHECK(ReadWhole(folder / "elsewhere/b") == "precious");
  CHECK(ReadWhole(folder / "precious") == "precious");
}

TEST_CASE("DataCache: what was used longest ago makes room") {
  const TemporaryFolder folder;
  const std::string cached = folder / "cache";
  DataCache cache({cached, 250'000});
  const FakeFiles one = {{"a", Content(100'000, '1')}}, two = {{"a", Content(100'000, '2')}};
  const FakeFiles three = {{"a", Content(100'000, '3')}};
  const std::string first = FetchInto(&cache, one)->folder();
  const std::string second = FetchInto(&cache, two)->folder();
  // What the cache did not make stays, whatever it is called.
  fs::create_directories(cached + "/mine");
  WriteWhole(cached + "/mine/file", Content(100'000, 'm'));
  WriteWhole(cached + "/" + std::string(64, 'f'), "a file");
  SECTION("the first") {
    UsedAt(first, 1'000);
    UsedAt(second, 2'000);
    FetchInto(&cache, three);
    CHECK_FALSE(fs::exists(first));
    CHECK(fs::exists(second));
  }
  SECTION("the second") {
    UsedAt(first, 2'000);
    UsedAt(second, 1'000);
    FetchInto(&cache, three);
    CHECK(fs::exists(first));
    CHECK_FALSE(fs::exists(second));
  }
  SECTION("not one that is used") {
    const auto held = cache.Open(ListOf(one), {});
    REQUIRE(held->whole);
    UsedAt(first, 1'000);
    UsedAt(second, 2'000);
    FetchInto(&cache, three);
    CHECK(fs::exists(first));
    CHECK_FALSE(fs::exists(second));
  }
  CHECK(fs::exists(cached + "/mine/file"));
  CHECK(fs::exists(cached + "/" + std::string(64, 'f')));
}

TEST_CASE("DataCache: what does not fit is refused with numbers") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache", 150'000});
  const FakeFiles small = {{"a", Content(100'000, '1')}};
  const auto refused = [&](const FakeFiles& files, const std::string& words) {
    const auto entry = cache.Open(ListOf(files), {});
    CHECK(entry.status().code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(Message(entry.status()), Catch::Contains(words));
  };
  refused({{"a", Content(200'000, '2')}}, "needs 195.3 KiB in --data-cache " + folder.path() +
                                              "/cache: --data-cache-bytes allows 146.5 KiB");
  CHECK(EntriesIn(folder / "cache").empty());
  const std::shared_ptr<const CachedData> used = FetchInto(&cache, small);
  refused({{"a", Content(100'001, '3')}}, "97.7 KiB are in use");
  CHECK(fs::exists(used->folder()));
  // More than any disk has, and no bound of the user's.
  DataCache unbounded({folder / "cache"});
  DataList list = ListOf(small);
  list.files[0].bytes = uint64_t{1} << 50;
  list.files[0].pieces.clear();
  list.files[0].version = "1";
  const auto entry = unbounded.Open(list, {});
  CHECK(entry.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(Message(entry.status()), Catch::Contains("half of what is free"));
}

TEST_CASE("DataCache: who wants what another one fetches waits for it") {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a", Content(100'000, 'a')}};
  DataCache one({folder / "cache", 0, std::chrono::milliseconds(1)});
  DataCache two({folder / "cache", 0, std::chrono::milliseconds(1)});
  auto entry = one.Open(ListOf(files), {});
  REQUIRE(entry->partial);
  std::promise<void> waits;
  std::atomic<bool> told = false;
  std::future<StatusOr<DataCache::Entry>> other = std::async(std::launch::async, [&]() {
    return two.Open(ListOf(files), {}, [&]() {
      if (!told.exchange(true)) waits.set_value();
    });
  });
  REQUIRE(waits.get_future().wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  SECTION("until it is whole") {
    Fill(entry->partial.get(), files);
    REQUIRE(one.Finish(std::move(entry->partial)).ok());
    StatusOr<DataCache::Entry> got = other.get();
    REQUIRE(got.ok());
    CHECK(got->whole);
  }
  SECTION("until it gave up") {
    entry->partial.reset();
    StatusOr<DataCache::Entry> got = other.get();
    REQUIRE(got.ok());
    CHECK(got->partial);
  }
}

TEST_CASE("DataCache: a wait for another process ends when it is stopped") {
  const TemporaryFolder folder;
  const FakeFiles files = {{"a", "content"}};
  DataCache one({folder / "cache"}), two({folder / "cache"});
  const auto entry = one.Open(ListOf(files), {});
  std::stop_source stop;
  stop.request_stop();
  CHECK(two.Open(ListOf(files), stop.get_token()).status().code() == absl::StatusCode::kCancelled);
}

TEST_CASE(
    "DataCache: a dataset that was listed without SHA-256 is known by its list and its content") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache"});
  const FakeFiles files = {{"a", Content(kPiece + 9, 'a')}};
  DataList list = ListOf(files, "https://host/data");
  list.files[0].pieces.clear();
  list.files[0].version = "etag";
  auto entry = cache.Open(list, {});
  REQUIRE(entry->partial);
  Fill(entry->partial.get(), files);
  const auto whole = cache.Finish(std::move(entry->partial));
  REQUIRE(whole.ok());
  CHECK((*whole)->folder() == folder / "cache/" + ListOf(files).Id());
  CHECK(cache.Open(list, {})->whole);
  CHECK(cache.Open(ListOf(files), {})->whole);
  list.files[0].version = "another";
  CHECK(cache.Open(list, {})->partial);
}

TEST_CASE("DataCache: what is not what it should be is thrown away, unless it is used") {
  const TemporaryFolder folder;
  DataCache cache({folder / "cache"});
  const FakeFiles files = {{"a", "content"}};
  std::shared_ptr<const CachedData> data = FetchInto(&cache, files);
  const std::string entry = data->folder();
  {
    const auto other = cache.Open(ListOf(files), {});
    cache.Discard(std::move(data));
    CHECK(fs::exists(entry));
    data = other->whole;
  }
  cache.Discard(std::move(data));
  CHECK_FALSE(fs::exists(entry));
}

}  // namespace
}  // namespace ringmaster::worker
