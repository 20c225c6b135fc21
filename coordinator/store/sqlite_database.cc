#include "coordinator/store/sqlite_database.h"

#include <sqlite3.h>

#include <type_traits>

#include "common/files.h"

namespace ringmaster::coordinator {

int64_t SqlRow::Integer(int column) const { return sqlite3_column_int64(statement_, column); }

double SqlRow::Real(int column) const { return sqlite3_column_double(statement_, column); }

bool SqlRow::IsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

std::string SqlRow::Text(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int size = sqlite3_column_bytes(statement_, column);
  return bytes == nullptr ? "" : std::string(bytes, static_cast<size_t>(size));
}

StatusOr<std::unique_ptr<SqliteDatabase>> SqliteDatabase::Open(const std::string& path) {
  std::unique_ptr<SqliteDatabase> database(new SqliteDatabase(path));
  RING_RETURN_IF_ERROR(database->Connect());
  return database;
}

Status SqliteDatabase::Connect() {
  // SQLite gives its other files the mode of this one.
  RING_RETURN_IF_ERROR(MakePrivateFile(path_));
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  if (sqlite3_open_v2(path_.c_str(), &handle_, kFlags, nullptr) != SQLITE_OK) return Fail("open");
  // The only connection ever: SQLite before 3.51.3 may corrupt a WAL that two connections reset.
  RING_RETURN_IF_ERROR(Run("PRAGMA locking_mode=EXCLUSIVE"));
  std::string mode;
  RING_RETURN_IF_ERROR(Run("PRAGMA journal_mode=WAL", {}, [&](const SqlRow& row) {
    mode = row.Text(0);
    return absl::OkStatus();
  }));
  if (mode != "wal") {
    return Error(absl::StatusCode::kUnavailable, "{}: no WAL, but {}", path_, mode);
  }
  RING_RETURN_IF_ERROR(Run("PRAGMA foreign_keys=ON"));
  return Run("PRAGMA synchronous=FULL");
}

void SqliteDatabase::Disconnect() {
  // Closing would sync and empty the log through the descriptors that cannot be trusted.
  if (broken_ && handle_ != nullptr) {
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  }
  sqlite3_close_v2(handle_);
  handle_ = nullptr;
  broken_ = false;
}

Status SqliteDatabase::Reconnect() {
  Disconnect();
  bool moved = false;
  Status status = Connect();
  if (status.ok()) {
    status = Run("PRAGMA wal_checkpoint(TRUNCATE)", {}, [&](const SqlRow& row) {
      moved = row.Integer(0) == 0;
      return absl::OkStatus();
    });
  }
  if (status.ok() && !moved) {
    status = Error(absl::StatusCode::kUnavailable, "{}: the log cannot be moved", path_);
  }
  broken_ = !status.ok();
  return status;
}

SqliteDatabase::~SqliteDatabase() { Disconnect(); }

Status SqliteDatabase::Run(const std::string& sql, const std::vector<SqlValue>& values,
                           const std::function<Status(const SqlRow&)>& on_row) {
  if (broken_) RING_RETURN_IF_ERROR(Reconnect());
  sqlite3_stmt* prepared = nullptr;
  if (sqlite3_prepare_v2(handle_, sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK) {
    return Fail(sql);
  }
  const std::unique_ptr<sqlite3_stmt, decltype(&sqlite3_finalize)> statement(prepared,
                                                                             &sqlite3_finalize);
  RING_RETURN_IF_ERROR(Bind(prepared, values));
  int result = SQLITE_DONE;
  while ((result = sqlite3_step(prepared)) == SQLITE_ROW) {
    if (on_row) RING_RETURN_IF_ERROR(on_row(SqlRow(prepared)));
  }
  return result == SQLITE_DONE ? absl::OkStatus() : Fail(sql);
}

Status SqliteDatabase::Transact(const std::function<Status()>& run) {
  if (within_) return run();
  RING_RETURN_IF_ERROR(Run("BEGIN IMMEDIATE"));
  within_ = true;
  Status status = run();
  within_ = false;
  if (status.ok()) status = Run("COMMIT");
  // What broke is opened anew by the next statement, without what was not committed; SQLite may
  // have rolled back already, which is all that this could fail for.
  if (!status.ok() && !broken_) (void)Run("ROLLBACK");
  return status;
}

Status SqliteDatabase::Bind(sqlite3_stmt* statement, const std::vector<SqlValue>& values) {
  int index = 0;
  for (const SqlValue& value : values) {
    ++index;
    const int result = std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            return sqlite3_bind_int64(statement, index, v);
          } else if constexpr (std::is_same_v<T, double>) {
            return sqlite3_bind_double(statement, index, v);
          } else if constexpr (std::is_same_v<T, std::monostate>) {
            return sqlite3_bind_null(statement, index);
          } else if constexpr (std::is_same_v<T, std::string>) {
            return sqlite3_bind_text64(statement, index, v.data(), v.size(), SQLITE_TRANSIENT,
                                       SQLITE_UTF8);
          } else {
            return sqlite3_bind_blob64(statement, index, v.value.data(), v.value.size(),
                                       SQLITE_TRANSIENT);
          }
        },
        value);
    if (result != SQLITE_OK) return Fail("bind");
  }
  return absl::OkStatus();
}

int64_t SqliteDatabase::Changes() const { return sqlite3_changes64(handle_); }

Status SqliteDatabase::Fail(const std::string& what) {
  constexpr int kPrimary = 0xff;
  if (handle_ == nullptr || (sqlite3_errcode(handle_) & kPrimary) == SQLITE_IOERR) broken_ = true;
  return Error(absl::StatusCode::kUnavailable, "{}: {}: {}", path_, what,
               handle_ == nullptr ? "out of memory" : sqlite3_errmsg(handle_));
}

}  // namespace ringmaster::coordinator
