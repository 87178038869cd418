// The page has everything without this script, too: then the browser reads what is in `noscript` at once. With it,
// that is a text until somebody opens it.
'use strict';

function load(hidden) {
  const box = hidden.parentElement;
  box.innerHTML = hidden.textContent;
  box.querySelectorAll('table.sorts').forEach(sortable);
}

function loadAll() {
  document.querySelectorAll('noscript').forEach(load);
}

// A link may lead to what is not loaded yet, is folded, or is not ticked.
function reveal() {
  const id = decodeURIComponent(location.hash.slice(1));
  if (!id) return;
  for (const hidden of document.querySelectorAll('noscript')) {
    if (hidden.parentElement.id === id || hidden.textContent.includes(`id="${id}"`)) load(hidden);
  }
  const target = document.getElementById(id);
  for (let at = target; at; at = at.parentElement) {
    if (at.localName === 'details') at.open = true;
    for (const name of at.classList) {
      const box = document.getElementById('show-' + name);
      if (box) box.checked = true;
    }
  }
  target?.scrollIntoView();
}

const UNITS = { us: 1e-6, ms: 1e-3, s: 1, k: 1e3, M: 1e6 };

// The figure in a cell, or its text. What has none comes last.
function worth(cell) {
  const text = cell?.textContent.trim() ?? '';
  const found = /^([\d.]+) ?(us|ms|s|k|M)?(?![a-z])/.exec(text);
  if (found) return found[1] * (UNITS[found[2]] ?? 1);
  return text === '-' || text === '' ? undefined : text;
}

function compare(one, other) {
  if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
  if (typeof one === 'number' && typeof other === 'number') return one - other;
  return String(one).localeCompare(String(other));
}

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.textContent = '\u25be';
    button.title = 'sort by: ' + head.textContent.trim();
    button.setAttribute('aria-label', button.title);
    button.addEventListener('click', () => {
      const falling = head.ariaSort === 'ascending';
      heads.forEach(other => other.removeAttribute('aria-sort'));
      head.ariaSort = falling ? 'descending' : 'ascending';
      const rows = [...table.tBodies[0].rows].map(row => [worth(row.cells[column]), row]);
      rows.sort(([one], [other]) => {
        const order = compare(one, other);
        return falling && one !== undefined && other !== undefined ? -order : order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
    head.append(' ', button);
  });
}

// The words of the box that shows an element: its data, its machine or its family.
function ticked(element, kind) {
  for (let at = element; at; at = at.parentElement) {
    const name = [...at.classList].find(name => name.startsWith(kind + '-'));
    if (name) return [name, document.getElementById('show-' + name)?.parentElement.textContent.trim() ?? ''];
  }
  return ['', ''];
}

// One table of the rows of all others, to sort and filter them together.
function gather() {
  const body = document.querySelector('#everything tbody');
  if (!body || body.rows.length) return;
  loadAll();
  for (const row of document.querySelectorAll('table.figures tbody tr')) {
    const group = row.closest('details'), section = group.closest('section');
    const kinds = ['family', 'data', 'machine'].map(kind => ticked(row, kind));
    // Within a section, several workloads have tables of the same title.
    let part = group;
    while (part && part.localName !== 'h3') part = part.previousElementSibling;
    const work = [section.querySelector('h2'), part, group.querySelector('summary')]
      .filter(it => it).map(it => it.textContent.split(';')[0]).join(': ');
    const cells = [...row.cells].map(cell => cell.textContent);
    const made = body.insertRow();
    made.className = kinds.map(([name]) => name).join(' ');
    [work, cells[1], ...kinds.map(([, words]) => words), ...cells.slice(2, 7)].forEach((text, column) => {
      const cell = made.insertCell();
      cell.textContent = text;
      if (column > 4) cell.className = 'n';
    });
  }
}

document.addEventListener('toggle', event => {
  if (!event.target.open) return;
  event.target.querySelectorAll('noscript').forEach(load);
  if (event.target.querySelector('#everything')) gather();
}, true);
addEventListener('hashchange', reveal);
addEventListener('beforeprint', loadAll);
const paper = matchMedia('print');
paper.addEventListener('change', () => paper.matches && loadAll());
document.querySelectorAll('table.sorts').forEach(sortable);
if (paper.matches) loadAll();
reveal();
