// The database on a disk that can be full and whose fsync can fail: a file system of SQLite's own
// kind that passes everything on to the real one.
#include "coordinator/store/sqlite_database.h"

#include <sqlite3.h>

#include <catch2/catch.hpp>
#include <new>

#include "coordinator/store/sqlite_store.h"
#include "tests/support/temporary_folder.h"

namespace ringmaster::coordinator {
namespace {

// What the disk does, and what it saw. One test at a time.
struct WatchedDisk {
  bool full = false;
  bool sync_fails = false;
  int failed_syncs = 0;
  int syncs_after_failure = 0;  // of a file whose sync had failed: must never happen
};
WatchedDisk disk;

// An open file; the real one's bytes stand behind it.
struct File {
  sqlite3_file base;
  bool failed;
  sqlite3_file* real;
};

sqlite3_file* Real(sqlite3_file* file) { return reinterpret_cast<File*>(file)->real; }

int Sync(sqlite3_file* file, int flags) {
  File& self = *reinterpret_cast<File*>(file);
  disk.syncs_after_failure += self.failed;
  if (disk.sync_fails) {
    ++disk.failed_syncs;
    self.failed = true;
    return SQLITE_IOERR_FSYNC;
  }
  return self.real->pMethods->xSync(self.real, flags);
}

// Version 1 has no shared memory, which an exclusive database does without.
const sqlite3_io_methods kMethods = {
    1,
    [](sqlite3_file* file) { return Real(file)->pMethods->xClose(Real(file)); },
    [](sqlite3_file* file, void* to, int bytes, sqlite3_int64 at) {
      return Real(file)->pMethods->xRead(Real(file), to, bytes, at);
    },
    [](sqlite3_file* file, const void* from, int bytes, sqlite3_int64 at) {
      return disk.full ? SQLITE_FULL : Real(file)->pMethods->xWrite(Real(file), from, bytes, at);
    },
    [](sqlite3_file* file, sqlite3_int64 bytes) {
      return Real(file)->pMethods->xTruncate(Real(file), bytes);
    },
    Sync,
    [](sqlite3_file* file, sqlite3_int64* bytes) {
      return Real(file)->pMethods->xFileSize(Real(file), bytes);
    },
    [](sqlite3_file* file, int level) { return Real(file)->pMethods->xLock(Real(file), level); },
    [](sqlite3_file* file, int level) { return Real(file)->pMethods->xUnlock(Real(file), level); },
    [](sqlite3_file* file, int* result) {
      return Real(file)->pMethods->xCheckReservedLock(Real(file), result);
    },
    [](sqlite3_file* file, int op, void* argument) {
      return Real(file)->pMethods->xFileControl(Real(file), op, argument);
    },
    [](sqlite3_file* file) { return Real(file)->pMethods->xSectorSize(Real(file)); },
    [](sqlite3_file* file) { return Real(file)->pMethods->xDeviceCharacteristics(Real(file)); },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

sqlite3_vfs* real_vfs = nullptr;

int OpenFile(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out_flags) {
  File& self = *new (file) File{
      {nullptr},
      false,
      reinterpret_cast<sqlite3_file*>(reinterpret_cast<char*>(file) + sizeof(File))};
  const int result = real_vfs->xOpen(real_vfs, name, self.real, flags, out_flags);
  if (self.real->pMethods != nullptr) self.base.pMethods = &kMethods;
  return result;
}

// While it lives every database is on the disk above.
class FailingDisk {
 public:
  FailingDisk() {
    real_vfs = sqlite3_vfs_find(nullptr);
    vfs_ = *real_vfs;
    vfs_.zName = "failing";
    vfs_.szOsFile = static_cast<int>(sizeof(File)) + real_vfs->szOsFile;
    vfs_.xOpen = OpenFile;
    sqlite3_vfs_register(&vfs_, 1);
    disk = {};
  }
  ~FailingDisk() {
    sqlite3_vfs_unregister(&vfs_);
    sqlite3_vfs_register(real_vfs, 1);
  }
  FailingDisk(const FailingDisk&) = delete;
  FailingDisk& operator=(const FailingDisk&) = delete;

 private:
  sqlite3_vfs vfs_{};
};

// The numbers in table t, added up; -1 when they cannot be read.
int64_t Sum(SqliteDatabase& database) {
  int64_t sum = 0;
  const Status status = database.Run("SELECT n FROM t", {}, [&](const SqlRow& row) {
    sum += row.Integer(0);
    return absl::OkStatus();
  });
  return status.ok() ? sum : -1;
}

TEST_CASE("SqliteDatabase: after a failed fsync the files are opened anew, and nothing is lost") {
  const FailingDisk failing;
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/db";
  auto database = SqliteDatabase::Open(path);
  REQUIRE(database.ok());
  REQUIRE((*database)->Run("CREATE TABLE t (n INTEGER PRIMARY KEY)").ok());
  REQUIRE((*database)->Run("INSERT INTO t VALUES (1)").ok());

  disk.sync_fails = true;
  for (int i = 0; i < 3; ++i) {
    const Status status = (*database)->Run("INSERT OR REPLACE INTO t VALUES (10)");
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(Message(status), Catch::Contains(path));
  }
  CHECK(disk.failed_syncs >= 1);

  disk.sync_fails = false;
  CHECK((*database)->Run("INSERT OR REPLACE INTO t VALUES (100)").ok());
  CHECK(disk.syncs_after_failure == 0);
  const int64_t sum = Sum(**database);
  CHECK((sum == 101 || sum == 111));  // what failed may be stored

  database->reset();
  auto again = SqliteDatabase::Open(path);
  REQUIRE(again.ok());
  CHECK(Sum(**again) == sum);
}

TEST_CASE("SqliteDatabase: on a full disk nothing is stored, and it goes on when there is room") {
  const FailingDisk failing;
  const TemporaryFolder folder;
  auto database = SqliteDatabase::Open(folder.path() + "/db");
  REQUIRE(database.ok());
  REQUIRE((*database)->Run("CREATE TABLE t (n INTEGER PRIMARY KEY)").ok());
  disk.full = true;
  for (int i = 0; i < 3; ++i) {
    const Status status = (*database)->Run("INSERT INTO t VALUES (10)");
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(Message(status), Catch::Contains("full"));
  }
  CHECK(Sum(**database) == 0);
  disk.full = false;
  CHECK((*database)->Run("INSERT INTO t VALUES (1)").ok());
  CHECK(Sum(**database) == 1);
}

// What tells that a full disk has room again must itself need room.
TEST_CASE("SqliteStore: to try whether it can be written really writes") {
  const FailingDisk failing;
  const TemporaryFolder folder;
  auto store = SqliteStore::Open(folder.path() + "/db");
  REQUIRE(store.ok());
  CHECK((*store)->TryWrite().ok());
  disk.full = true;
  CHECK((*store)->TryWrite().code() == absl::StatusCode::kUnavailable);
  disk.full = false;
  CHECK((*store)->TryWrite().ok());
  CHECK((*store)->term() == 1);
}

}  // namespace
}  // namespace ringmaster::coordinator
