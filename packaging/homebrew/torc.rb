# A formula for Homebrew on Linux: `brew install --formula ./torc.rb` beside the archive. Not built here.
class Torc < Formula
  desc "Workflows of shell jobs that recover by themselves"
  url "file://#{__dir__}/../@ARCHIVE@"
  version "@VERSION@"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on :linux

  def install
    bin.install "bin/torc"
    man1.install Dir["share/man/man1/*"]
    bash_completion.install "share/bash-completion/completions/torc"
    fish_completion.install "share/fish/vendor_completions.d/torc.fish"
    zsh_completion.install "share/zsh/site-functions/_torc"
  end

  test do
    assert_match "torc", shell_output("#{bin}/torc --version")
  end
end
