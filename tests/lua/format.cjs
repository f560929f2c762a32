// Check that StyLua would leave these files as they are; with `--write` it puts them right.
const fs = require('node:fs');
const stylua = require('@johnnymorganz/stylua');

function config() {
  const found = stylua.Config.new();
  found.column_width = 120;
  found.indent_type = stylua.IndentType.Spaces;
  found.indent_width = 2;
  found.quote_style = stylua.QuoteStyle.AutoPreferSingle;
  found.syntax = stylua.LuaVersion.Lua51;
  return found;
}

const files = process.argv.slice(2).filter((word) => word !== '--write');
const writes = process.argv.includes('--write');
for (const file of files) {
  const text = fs.readFileSync(file, 'utf8');
  const formatted = stylua.formatCode(text, config(), undefined, stylua.OutputVerification.None);
  if (formatted === text) continue;
  if (writes) {
    fs.writeFileSync(file, formatted);
  } else {
    console.log(`${file} is not formatted: npm install --prefix tests/lua; python -m tests.lua --write`);
    process.exitCode = 1;
  }
}
