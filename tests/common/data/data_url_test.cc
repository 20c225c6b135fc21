#include "common/data/data_url.h"

#include <catch2/catch.hpp>

namespace ringmaster::data {
namespace {

std::string UrlErrorOf(const std::string& url) {
  const auto parsed = ParseDataUrl(url);
  return parsed.ok() ? "valid" : Message(parsed.status());
}

TEST_CASE("Data addresses: what is one, and no folder") {
  CHECK(IsDataUrl("https://h/x"));
  CHECK(IsDataUrl("s3://bucket/x/"));
  CHECK_FALSE(IsDataUrl("cifar10"));
  CHECK_FALSE(IsDataUrl("a:b/c"));
}

TEST_CASE("Data addresses: web servers") {
  const auto file = ParseDataUrl("HTTPS://Data.Example:8443/a/b%20%C3%BC.npz");
  REQUIRE(file.ok());
  CHECK(file->scheme == DataUrl::Scheme::kHttps);
  CHECK(file->host == "data.example:8443");
  CHECK(file->path == "/a/b%20%C3%BC.npz");
  CHECK_FALSE(file->folder());
  CHECK(file->file_name() == "b ü.npz");
  for (const char* folder : {"http://h", "http://h/", "http://[::1]:80/d/"}) {
    const auto url = ParseDataUrl(folder);
    REQUIRE(url.ok());
    CHECK(url->scheme == DataUrl::Scheme::kHttp);
    CHECK(url->folder());
  }
  CHECK(ParseDataUrl("http://h")->path == "/");
}

TEST_CASE("Data addresses: object stores, whose keys are no addresses") {
  const auto prefix = ParseDataUrl("s3://my.bucket/a b/50%?#/");
  REQUIRE(prefix.ok());
  CHECK(prefix->scheme == DataUrl::Scheme::kS3);
  CHECK(prefix->host == "my.bucket");
  CHECK(prefix->path == "a b/50%?#/");
  CHECK(prefix->folder());
  CHECK(ParseDataUrl("s3://bucket")->folder());
  CHECK(ParseDataUrl("s3://bucket/")->path.empty());
  CHECK(ParseDataUrl("s3://bucket/a/50%41")->file_name() == "50%41");
}

TEST_CASE("Data addresses: what is none is said in words") {
  CHECK(UrlErrorOf("ftp://h/x") ==
        "addresses of data begin with https://, http:// or s3://, not \"ftp://\"");
  CHECK(UrlErrorOf("file:///etc/passwd").find("not \"file://\"") != std::string::npos);
  for (const char* secret : {"https://me:pw@h/x", "https://pw@h/x", "s3://pw:pw@bucket/x"}) {
    INFO(secret);
    CHECK(UrlErrorOf(secret).find("there are credentials in the address") != std::string::npos);
    CHECK(UrlErrorOf(secret).find("pw") == std::string::npos);
  }
  for (const char* host : {"https:///x", "https://h:0/x", "https://h:65536/x", "https://h:/x",
                           "https://a b/x", "https://[::1/x", "https://-h/x", "https://h\\x/"}) {
    INFO(host);
    CHECK(UrlErrorOf(host).find("is no host; expected HOST or HOST:PORT") != std::string::npos);
  }
  for (const char* bucket :
       {"s3:///x", "s3://ab/x", "s3://Bucket/x", "s3://a..b/x", "s3://-ab/x"}) {
    INFO(bucket);
    CHECK(UrlErrorOf(bucket).find("is no name of a bucket") != std::string::npos);
  }
  CHECK(UrlErrorOf("https://h/x?token=secret").find("no query or fragment") != std::string::npos);
  CHECK(UrlErrorOf("https://h/x?token=secret").find("secret") == std::string::npos);
  CHECK(UrlErrorOf("https://h?token=secret").find("secret") == std::string::npos);
  CHECK(UrlErrorOf("https://h/a b").find("percent-encoded, as %20") != std::string::npos);
  CHECK(UrlErrorOf("https://h/a%2").find("percent-encoded, as %25") != std::string::npos);
  CHECK(UrlErrorOf("https://h/a%2fb").find("is an encoded `/`") != std::string::npos);
  CHECK(UrlErrorOf("https://h/a%2F../b").find("is an encoded `/`") != std::string::npos);
  for (const char* leaves :
       {"https://h/a/../b", "https://h/%2e%2E/b", "s3://bucket/a/..", "s3://bucket/../x"}) {
    INFO(leaves);
    CHECK(UrlErrorOf(leaves).find("leaves its folder by `..`") != std::string::npos);
  }
  CHECK(UrlErrorOf("https://h//x").find("has an empty part") != std::string::npos);
  CHECK(UrlErrorOf("https://h/%00").find("control characters") != std::string::npos);
  CHECK(UrlErrorOf("https://h/%ff").find("is a name that is no UTF-8") != std::string::npos);
}

TEST_CASE("File names: relative, of parts, and nothing that turns text around") {
  for (const char* good : {"a", "a/b c", "ü/50%+'(", "..a", "a..", "...", ".hidden"}) {
    INFO(good);
    CHECK(CheckFileName(good).ok());
  }
  CHECK(CheckFileName(std::string(255, 'a') + "/" + std::string(255, 'b')).ok());
  const std::string zero("a\0b", 3);
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"),
        std::string("./a"), std::string(".."), std::string("a/../b"), std::string("a\nb"),
        std::string("a\tb"), std::string("\xff"), std::string("a\xe2\x80\xae"), zero,
        std::string(256, 'a')}) {
    INFO(bad);
    CHECK_FALSE(CheckFileName(bad).ok());
  }
  std::string longest = "a";
  while (longest.size() < kMaxFileName) longest += "/a";
  CHECK_FALSE(CheckFileName(longest).ok());
}

TEST_CASE("File names: each once, and none is the folder of another") {
  CHECK(CheckFileNames({"a", "b/c", "b/d"}).ok());
  CHECK(Message(CheckFileNames({"a", "b", "b"})) == "\"b\" is there twice");
  CHECK(Message(CheckFileNames({"a", "a-", "a/b/c"})) ==
        "\"a\" is a file, and the folder of \"a/b/c\"");
  CHECK(Message(CheckFileNames({"a/b", "a/b.c", "a/b/c"})) ==
        "\"a/b\" is a file, and the folder of \"a/b/c\"");
}

TEST_CASE("Percent-encoding: all but unreserved characters, as S3's rules have it") {
  CHECK(PercentEncoded("AZaz09-._~", "") == "AZaz09-._~");
  CHECK(PercentEncoded("a b/+'(ü%*", "/") == "a%20b/%2B%27%28%C3%BC%25%2A");
  CHECK(PercentEncoded("a/b", "") == "a%2Fb");
}

}  // namespace
}  // namespace ringmaster::data
