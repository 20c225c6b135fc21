// One SQLite connection and its statements, with errors as Status. Thread-compatible. Knows no
// table.
//
// After an I/O error (a failed fsync is one) no file is written through the old descriptors again:
// the kernel has dropped the pages and would call the next fsync a success. The next statement
// opens the files anew and first moves the log, which it reads as it is, into the database, so that
// every page that counts was written and synced after the error. A statement that failed may turn
// out to be stored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "common/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ringmaster::coordinator {

// A value bound to a `?`: NULL, a number, text, or bytes.
struct Bytes {
  std::string value;
};
using SqlValue = std::variant<std::monostate, int64_t, double, std::string, Bytes>;

// One row of a result; columns count from 0.
class SqlRow {
 public:
  explicit SqlRow(sqlite3_stmt* statement) : statement_(statement) {}
  [[nodiscard]] int64_t Integer(int column) const;
  [[nodiscard]] double Real(int column) const;
  [[nodiscard]] bool IsNull(int column) const;
  [[nodiscard]] std::string Text(int column) const;  // or bytes

 private:
  sqlite3_stmt* statement_;
};

class SqliteDatabase {
 public:
  // Opens or creates `path`: WAL, synchronous=FULL, exclusive. UNAVAILABLE with path and reason.
  [[nodiscard]] static StatusOr<std::unique_ptr<SqliteDatabase>> Open(const std::string& path);
  ~SqliteDatabase();
  SqliteDatabase(const SqliteDatabase&) = delete;
  SqliteDatabase& operator=(const SqliteDatabase&) = delete;

  // All that `run` changes, or nothing: when it or the end of it fails nothing is left of it but
  // for a failure of the disk, as below. Within another one it is a part of that.
  [[nodiscard]] Status Transact(const std::function<Status()>& run);
  // Runs one statement; a change is on disk when it returns OK. `on_row` may refuse a row.
  [[nodiscard]] Status Run(const std::string& sql, const std::vector<SqlValue>& values = {},
                           const std::function<Status(const SqlRow&)>& on_row = nullptr);
  // Rows that the newest change touched.
  [[nodiscard]] int64_t Changes() const;

 private:
  explicit SqliteDatabase(std::string path) : path_(std::move(path)) {}
  [[nodiscard]] Status Connect();
  [[nodiscard]] Status Reconnect();
  void Disconnect();
  [[nodiscard]] Status Fail(const std::string& what);
  [[nodiscard]] Status Bind(sqlite3_stmt* statement, const std::vector<SqlValue>& values);

  const std::string path_;
  sqlite3* handle_ = nullptr;
  bool broken_ = false;  // by an I/O error
  bool within_ = false;  // a transaction
};

}  // namespace ringmaster::coordinator
